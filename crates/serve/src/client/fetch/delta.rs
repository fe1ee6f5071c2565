//! Copies the blocks that a local file has in common with the server's file, and requests the others.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
};

use thalweg_core::{Side, atomic_file::failed, mechanisms::LAST_RESORT};
use thalweg_sys::io;
use thalweg_tree::{Ranges, journal::Remote};

use super::{
    super::{
        Extra, FetchError,
        ask::ask,
        block_digests::BlockDigests,
        block_index::BlockIndex,
        connect::FetchConnection,
        deadline::{CancelCheck, NetDeadline},
        download::BaseFile,
        in_memory::body_in_memory,
        request,
        resume::{FileRequest, RangeOutcome, classify_response},
        validator::{Validators, validators},
    },
    FileFetch, ListedFile,
};
use crate::blocks::{BlockDigest, BlockRequest, DIGEST_BYTES, LEAST_DELTA, MEDIA_TYPE, SUM_BYTES};

/// Maximum number of missing ranges that are requested. If the file has more, thalweg also fetches the short local
/// ranges between them.
const MOST_GAPS: usize = 4096;
/// Bytes of requests that are sent before their answers are read. The buffer of a pipe holds them, so the client never
/// blocks in a send while the server waits for the client to read.
const MOST_AHEAD: usize = 16 << 10;

/// The sums of the server's file, and the version that they describe.
struct ServerBlocks {
    request: BlockRequest,
    index: BlockIndex,
    remote: Remote,
}

/// The block digests of a file that contains local blocks, and the server's digest of all of them.
pub(super) struct OwnBlocks {
    digests: BlockDigests,
    root: BlockDigest,
}

impl OwnBlocks {
    /// Compares the complete file with the digest of the server. `reads_back`: `true` to read every block from the
    /// file.
    pub fn check(
        &mut self,
        file: BorrowedFd<'_>,
        reads_back: bool,
        check_cancelled: &CancelCheck<'_>,
    ) -> Result<(), FetchError> {
        if reads_back {
            self.digests.keep_only(&[]);
        }
        self.digests.check(file, &self.root, check_cancelled)
    }
}

impl FileFetch<'_> {
    /// Copies blocks from the replaced or renamed file to the new file, and leaves holes for blocks of zeros. A partial
    /// file of an earlier run may contain such blocks, so its complete content is compared at the end. If the server's
    /// sums cannot be used, the whole file is fetched.
    pub(super) fn begin_delta(&mut self) -> Result<(), FetchError> {
        let listed = self.listed.filter(|listed| listed.size >= LEAST_DELTA);
        let may_use = self.options.channels.is_some() && self.download.is_rewindable();
        let Some(listed) = listed.filter(|_| may_use) else { return Ok(()) };
        let replaced = self.download.replaced();
        let base = replaced.as_ref().or(listed.base).filter(|base| base.size >= LEAST_DELTA);
        // A partial file without blocks of another file has only one gap, at its end.
        let may_have_blocks =
            listed.may_continue_base || self.download.done().gaps(listed.size).len() > 1;
        let continues_delta = self.known.is_some() && may_have_blocks;
        if base.is_none() && !listed.is_sparse && !continues_delta {
            return Ok(());
        }
        let blocks = match self.ask_for_blocks(listed) {
            Ok(blocks) => blocks,
            Err(error) if error.is_passing() || matches!(error, FetchError::Cancelled) => {
                // The retry asks for the sums again.
                self.may_use_delta = true;
                return Err(error);
            }
            Err(error) => {
                self.watcher.report(&format!(
                    "cannot use the block sums of the server: {error}; fetching the whole file"
                ));
                None
            }
        };
        match (blocks, self.known.as_ref()) {
            (Some(blocks), Some(known)) if blocks.remote.validator == known.validator => {
                let digests = BlockDigests::new(blocks.request, known.size);
                self.own_blocks = Some(OwnBlocks { digests, root: blocks.index.root });
                Ok(())
            }
            (Some(blocks), None) => self.use_blocks(base, blocks),
            (Some(blocks), Some(_)) => {
                self.restart()?;
                self.use_blocks(base, blocks)
            }
            (None, Some(_)) => self.restart(),
            (None, None) => Ok(()),
        }
    }

    /// Requests the sums of the file. `None` if the answer has no validator, so that later answers cannot be compared
    /// with it.
    fn ask_for_blocks(&self, listed: &ListedFile<'_>) -> Result<Option<ServerBlocks>, FetchError> {
        let check = || self.watcher.check_cancelled();
        let (size, request) = (listed.size, BlockRequest::of_file(listed.size));
        let Some(count) = request.count(size) else { return Ok(None) };
        let target = self.target.with_query(&request.query());
        let (mut connection, head, _) = ask(&target, &FileRequest::ALL, self.options, &check)?;
        let is_list = head.get("content-type") == Some(MEDIA_TYPE);
        let why = "the answer is not a list of block sums (wrong Content-Type)";
        let is_list = is_list.then_some(()).ok_or_else(|| FetchError::broken(why));
        if let Err(error) = is_list.and_then(|()| listed.check(&head, Some(size))) {
            let deadline = NetDeadline { limit: self.options.stall, check: &check };
            connection.decline(&head, 0, &deadline);
            return Err(error);
        }
        let most = count * SUM_BYTES as u64 + DIGEST_BYTES as u64;
        let what = "the list of block sums";
        let answer = body_in_memory(&mut connection, &head, most, what, self.options, &check)?;
        let Some(Validators { strong: validator, weak }) = validators(&head, Some(size), true)
        else {
            connection.finish(&head);
            return Ok(None);
        };
        connection.finish(&head);
        let index = BlockIndex::parse(request, size, &answer);
        let index =
            index.ok_or_else(|| FetchError::broken("the list of block sums has a wrong length"))?;
        let remote = Remote { url: self.target.to_string(), validator, weak, size };
        Ok(Some(ServerBlocks { request, index, remote }))
    }

    /// Copies the blocks that `base` has. Blocks of zeros become holes if the server's file has holes.
    fn use_blocks(
        &mut self,
        base: Option<&BaseFile>,
        ServerBlocks { request, index, remote }: ServerBlocks,
    ) -> Result<(), FetchError> {
        let sink = self.download.descriptor()?;
        let is_sparse = self.listed.is_some_and(|listed| listed.is_sparse);
        // Bytes of an earlier attempt must not remain where a hole belongs.
        for size in [0, remote.size] {
            io::ftruncate(&sink, size).map_err(failed("ftruncate"))?;
        }
        let here = Mutex::new((Ranges::default(), BlockDigests::new(request, remote.size)));
        let note = |at: u64, len: usize, digest: &BlockDigest| {
            let mut here = here.lock().unwrap_or_else(PoisonError::into_inner);
            here.0.add(at, at + len as u64);
            here.1.add(at, *digest);
        };
        if is_sparse {
            index.find_zeros(&|at, bytes, digest| {
                note(at, bytes.len(), digest);
                Ok(())
            })?;
        }
        let take = |at: u64, bytes: &[u8], digest: &BlockDigest| {
            if !is_sparse || bytes.iter().any(|byte| *byte != 0) {
                io::pwrite_all(&sink, bytes, at).map_err(|end| {
                    let info = LAST_RESORT.info();
                    FetchError::Moved(info.error("pwrite", Side::Sink, end.errno, end.at))
                })?;
            }
            note(at, bytes.len(), digest);
            Ok(())
        };
        let check = || self.watcher.check_cancelled();
        if let Some(base) = base {
            index.find_in(base.fd.as_fd(), base.size, &take, &check)?;
        }
        self.download.begin(&remote)?;
        self.size = Some(remote.size);
        let (here, mut digests) = here.into_inner().unwrap_or_else(PoisonError::into_inner);
        let here = longest(&here, MOST_GAPS);
        for (from, to) in &here {
            self.download.note(*from, *to);
        }
        digests.keep_only(&here);
        self.resumed = self.download.done().bytes();
        self.known = Some(remote);
        self.expected.clone_from(&self.options.expected);
        self.own_blocks = Some(OwnBlocks { digests, root: index.root });
        Ok(())
    }

    /// Fetches the missing ranges over one connection, and sends requests before earlier ones are answered. Returns
    /// `true` if the file is complete, and `false` if single requests must fetch the rest.
    pub(super) fn bring_gaps(
        &mut self,
        known: &Remote,
        gaps: &[(u64, u64)],
    ) -> Result<bool, FetchError> {
        let ended = self.bring_each(known, gaps);
        // After an unexpected answer, single requests find out the reason.
        self.may_bring_gaps = matches!(&ended, Err(error) if error.is_passing());
        ended
    }

    fn bring_each(&mut self, known: &Remote, gaps: &[(u64, u64)]) -> Result<bool, FetchError> {
        let (watcher, options, target) = (self.watcher, self.options, self.target);
        let check = || watcher.check_cancelled();
        let deadline = NetDeadline { limit: options.stall, check: &check };
        let extra = Extra { wants_digest: false, ..options.extra.clone() };
        let asked = |(from, to): (u64, u64)| FileRequest {
            range: Some((from, (to < known.size).then_some(to))),
            known: Some(known),
            is_conditional: true,
            is_vouched: true,
        };
        let mut connection = FetchConnection::open(target, options, &deadline)?;
        let (mut sent, mut last) = (0, None);
        for (n, gap) in gaps.iter().copied().enumerate() {
            let mut text = String::new();
            // Requests are sent in groups, so that few packets carry them.
            if n == sent {
                while sent < gaps.len() && text.len() < MOST_AHEAD {
                    text += &request::text(target, &asked(gaps[sent]), &extra, true, None);
                    sent += 1;
                }
                connection.send(text.as_bytes(), &deadline)?;
            }
            let head = connection.head(&deadline)?;
            let outcome = classify_response(&asked(gap), &head);
            match outcome.and_then(|outcome| self.is_as_listed(&head, outcome)) {
                Ok(RangeOutcome::Piece { to, .. }) if to == gap.1 => {}
                unwanted => {
                    connection.decline(&head, sent - n - 1, &deadline);
                    return unwanted.map(|_| false);
                }
            }
            self.body(&mut connection, &head, gap.0, Some(gap.1 - gap.0))?;
            if !head.keeps_alive() {
                return Ok(self.download.done().gaps(known.size).is_empty());
            }
            last = Some(head);
        }
        if let Some(head) = last {
            connection.finish(&head);
        }
        Ok(self.download.done().gaps(known.size).is_empty())
    }
}

/// Returns the local ranges. While there are more than `most`, drops all ranges that are at most twice as long as the
/// shortest one.
fn longest(here: &Ranges, most: usize) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = here.iter().collect();
    while ranges.len() > most {
        let shortest = ranges.iter().map(|(from, to)| to - from).min().unwrap_or(0);
        ranges.retain(|(from, to)| to - from > 2 * shortest);
    }
    ranges
}
