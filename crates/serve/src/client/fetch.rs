//! Fetches one file: sends requests until the file is complete, checks it and publishes it under its name.

mod delta;

use std::{
    sync::{Condvar, Mutex},
    time::Instant,
};

use thalweg_core::{Report, atomic_file::Destination, quantity};
use thalweg_sys::usage::Usage;
use thalweg_tree::{
    install::{EntryAttributes, KeptPath},
    journal::Remote,
};

use self::delta::OwnBlocks;
use super::{
    Expected, FetchError, FetchOptions, FetchUrl,
    ask::ask,
    body::{ResponseBody, book},
    connect::FetchConnection,
    deadline::NetDeadline,
    download::{BaseFile, Download},
    head::{Framing, ResponseHead},
    pull::{LEAST, OpenResponse, ParallelFetch, ParallelState, Pulled},
    resume::{FileRequest, RangeOutcome, classify_response},
    retry,
    scaler::Connections,
    validator::Validators,
    watcher::{FetchProgress, FetchWatcher},
};
use crate::http::range::ByteRange;

/// A file that was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes that an earlier run had moved.
    pub resumed: u64,
    /// Extended attributes that the file system of the destination refused.
    pub refused_xattrs: u64,
    /// Bytes moved by each mechanism.
    pub report: Report,
    /// Hashes that were compared.
    pub checked: Vec<&'static str>,
}

/// A file that could not be fetched.
#[derive(Debug)]
pub struct FetchFailure {
    /// The reason.
    pub error: FetchError,
    /// Bytes present, and the size of the file if known.
    pub there: u64,
    pub size: Option<u64>,
    /// `true` if the partial file was kept, so that the same call can resume.
    pub kept: bool,
    /// Bytes moved by each mechanism.
    pub report: Report,
}

/// Warning for a body that ends with the connection.
const UNKNOWN_LENGTH: &str = "the server did not send the file's size; the file may be incomplete";
const CHANGED: &str = "the file changed on the server, or a response does not identify its version; \
                       restarting from byte 0";
const WRONG_BLOCKS: &str =
    "the file differs from the digest of the server; fetching the whole file";
/// Maximum number of changes of the file during a fetch. After more of them, another change is likely.
const MOST_CHANGES: u32 = 2;

/// The list's description of a file, and the attributes that the complete file receives.
pub struct ListedFile<'a> {
    pub size: u64,
    pub etag: &'a str,
    pub attributes: &'a EntryAttributes,
    /// `true` if the file on the server has holes.
    pub is_sparse: bool,
    /// The place where the replaced entry is kept, if requested.
    pub kept: Option<KeptPath<'a>>,
    /// A local file of another name that may have the same content.
    pub base: Option<&'a BaseFile>,
    /// `true` if the partial file of an earlier run may contain blocks of another local file.
    pub may_continue_base: bool,
}

impl ListedFile<'_> {
    /// Checks that a response is about the listed file. The comparison ignores `W/`: a server sends a weak tag while a
    /// file is young, and a strong one later.
    pub fn check(&self, head: &ResponseHead, size: Option<u64>) -> Result<(), FetchError> {
        let want = self.size;
        let out_of_date = |why: String| Err(FetchError::OutOfDate(why));
        match size {
            None => return out_of_date("the response does not state the size".to_owned()),
            Some(size) if size != want => {
                let (size, want) = (quantity::exact(size), quantity::exact(want));
                return out_of_date(format!("the size is {size}, but the list states {want}"));
            }
            Some(_) => {}
        }
        let strong = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        match head.get("etag") {
            Some(own) if strong(own) == strong(self.etag) => Ok(()),
            _ => out_of_date("the ETag is different".to_owned()),
        }
    }
}

/// Fetches a file.
pub fn fetch(
    target: &FetchUrl,
    destination: Destination,
    options: &FetchOptions,
    watcher: &dyn FetchWatcher,
) -> Result<Fetched, Box<FetchFailure>> {
    fetch_listed(target, destination, options, watcher, None)
}

/// Fetches a file like [`fetch`]; `listed` describes it if it is an entry of a list.
pub fn fetch_listed(
    target: &FetchUrl,
    destination: Destination,
    options: &FetchOptions,
    watcher: &dyn FetchWatcher,
    listed: Option<&ListedFile<'_>>,
) -> Result<Fetched, Box<FetchFailure>> {
    let (began, usage) = (Instant::now(), Usage::now_process());
    let stopped = |error| {
        Box::new(FetchFailure {
            error,
            there: 0,
            size: None,
            kept: false,
            report: Report::default(),
        })
    };
    let mut download = Download::at(destination).map_err(stopped)?;
    if let Some(left) = download.left_alone() {
        watcher.report(&format!("warning: {left}"));
    }
    let known = download.adopt(&target.to_string()).map_err(stopped)?;
    let resumed = download.done().bytes();
    let size = known.as_ref().map(|known| known.size);
    let mut run = FileFetch {
        target,
        options,
        watcher,
        listed,
        download,
        known,
        size,
        resumed,
        is_ranged: true,
        is_conditional: true,
        changes: 0,
        may_use_delta: true,
        may_bring_gaps: options.channels.is_some(),
        own_blocks: None,
        may_be_pulled: options.channels.is_none()
            && options.connections != Connections::Exactly(1)
            // Another connection does not make a rate-limited fetch faster.
            && (options.way.limit.is_none() || options.connections != Connections::Auto),
        expected: options.expected.clone(),
        checked: Vec::new(),
        report: Report::default(),
    };
    let mut result = run.ask_until_complete().and_then(|()| run.check());
    if run.own_blocks.is_some() && matches!(result, Err(FetchError::Differs { .. })) {
        watcher.report(WRONG_BLOCKS);
        result = run.restart();
        result = result.and_then(|()| run.ask_until_complete()).and_then(|()| run.check());
    }
    run.report.wall = began.elapsed();
    run.report.cpu = Usage::now_process().since(&usage).cpu();
    run.end(result)
}

struct FileFetch<'a> {
    target: &'a FetchUrl,
    options: &'a FetchOptions,
    watcher: &'a dyn FetchWatcher,
    listed: Option<&'a ListedFile<'a>>,
    download: Download,
    /// The version of the file that is fetched, if it can be resumed.
    known: Option<Remote>,
    size: Option<u64>,
    resumed: u64,
    is_ranged: bool,
    is_conditional: bool,
    changes: u32,
    /// `true` if [`Self::begin_delta`] has still to be called.
    may_use_delta: bool,
    /// `true` if missing ranges may be requested before earlier requests are answered.
    may_bring_gaps: bool,
    /// The block digests of the new file, if it contains blocks of a local file.
    own_blocks: Option<OwnBlocks>,
    /// `true` if several connections may fetch the file.
    may_be_pulled: bool,
    expected: Vec<Expected>,
    /// Names of the hashes that matched.
    checked: Vec<&'static str>,
    report: Report,
}

impl FileFetch<'_> {
    /// Sends requests until the file is complete, or until a retry makes no sense.
    fn ask_until_complete(&mut self) -> Result<(), FetchError> {
        let (mut tries, mut best) = (0, self.download.done().bytes());
        loop {
            let error = match self.once() {
                Ok(true) => return Ok(()),
                Ok(false) => continue,
                Err(error) => error,
            };
            let there = self.download.done().bytes();
            if there > best {
                (tries, best) = (0, there);
            }
            tries += 1;
            let pause = retry::pause(tries, self.options.retries, error.after());
            let can_retry = self.known.is_some() || self.download.is_rewindable() || there == 0;
            let Some(pause) = pause.filter(|_| error.is_passing() && can_retry) else {
                return Err(error);
            };
            let watcher = self.watcher;
            retry::wait(&error, pause, |message| watcher.report(message), &|| {
                watcher.check_cancelled()
            })?;
        }
    }

    /// Sends one request and receives its body. Returns `true` if the file is complete.
    fn once(&mut self) -> Result<bool, FetchError> {
        if self.known.is_none() && self.download.done().bytes() > 0 {
            // The received part belongs to a response without a validator, so no other response can be joined to it.
            self.restart()?;
        }
        if std::mem::replace(&mut self.may_use_delta, false) {
            self.begin_delta()?;
        }
        let known = self.known.clone();
        let size = known.as_ref().map_or(u64::MAX, |known| known.size);
        let gaps = self.download.done().gaps(size);
        let Some((from, to)) = gaps.first().copied() else { return Ok(true) };
        if let Some(known) = known.as_ref().filter(|_| gaps.len() > 1 && self.may_bring_gaps) {
            return self.bring_gaps(known, &gaps);
        }
        let is_conditional = self.is_conditional && known.is_some();
        let range = self.is_ranged.then_some((from, (to < size).then_some(to)));
        let is_vouched = !self.options.expected.is_empty();
        let asked = FileRequest { range, known: known.as_ref(), is_conditional, is_vouched };
        let check = || self.watcher.check_cancelled();
        let (connection, head, _) = ask(self.target, &asked, self.options, &check)?;
        let outcome = classify_response(&asked, &head);
        match outcome.and_then(|outcome| self.is_as_listed(&head, outcome)) {
            Ok(RangeOutcome::Piece { to, total, validators }) => {
                let response = OpenResponse { connection, head, span: ByteRange { from, to } };
                self.receive_piece(response, total, validators)
            }
            Ok(RangeOutcome::Whole(size)) => {
                self.receive_whole(connection, &head, size)?;
                Ok(true)
            }
            unwanted => {
                let deadline = NetDeadline { limit: self.options.stall, check: &check };
                connection.decline(&head, 0, &deadline);
                self.ask_differently(&unwanted?)?;
                Ok(false)
            }
        }
    }

    /// Prepares another request after a response with a useless body.
    fn ask_differently(&mut self, outcome: &RangeOutcome) -> Result<(), FetchError> {
        match outcome {
            RangeOutcome::Unconditional => self.is_conditional = false,
            RangeOutcome::Another => {
                self.changes += 1;
                if self.changes > MOST_CHANGES {
                    return Err(FetchError::Changing);
                }
                self.watcher.report(CHANGED);
                self.restart()?;
            }
            RangeOutcome::Unranged => {
                self.restart()?;
                self.is_ranged = false;
            }
            RangeOutcome::Piece { .. } | RangeOutcome::Whole(_) => {}
        }
        Ok(())
    }

    /// Receives a part of a file of `total` bytes, and may fetch the rest over several connections. `validators`:
    /// identify the version of the file, if it was unknown before this response. Returns `true` if the file is
    /// complete.
    fn receive_piece(
        &mut self,
        response: OpenResponse,
        total: u64,
        validators: Option<Validators>,
    ) -> Result<bool, FetchError> {
        self.size = Some(total);
        self.note_digest(&response.head)?;
        if self.known.is_none() {
            if let Some(Validators { strong: validator, weak }) = validators {
                let url = self.target.to_string();
                let remote = Remote { url, validator, weak, size: total };
                self.download.begin(&remote)?;
                self.known = Some(remote);
            } else {
                self.restart()?;
                self.size = Some(total);
            }
        }
        if self.may_be_pulled
            && let Some(known) = self.known.clone()
            && total - self.download.done().bytes() > LEAST
            && self.download.is_rewindable()
        {
            return self.pull(&known, response);
        }
        let OpenResponse { mut connection, head, span } = response;
        self.body(&mut connection, &head, span.from, Some(span.len()))?;
        connection.finish(&head);
        Ok(self.download.done().gaps(total).is_empty())
    }

    /// Receives the whole file, of this size if the server sent one.
    fn receive_whole(
        &mut self,
        mut connection: FetchConnection,
        head: &ResponseHead,
        size: Option<u64>,
    ) -> Result<(), FetchError> {
        self.restart()?;
        self.size = size;
        self.note_digest(head)?;
        self.body(&mut connection, head, 0, size)?;
        connection.finish(head);
        if head.framing()? == Framing::UntilClose && self.expected.is_empty() {
            self.watcher.report(UNKNOWN_LENGTH);
        }
        self.size = Some(self.download.done().end());
        Ok(())
    }

    /// Receives the body of a response and all other missing bytes, over as many connections as are useful.
    fn pull(&mut self, known: &Remote, first: OpenResponse) -> Result<bool, FetchError> {
        let pull = ParallelFetch {
            target: self.target,
            options: self.options,
            watcher: self.watcher,
            known,
            is_conditional: self.is_conditional,
            resumed: self.resumed,
            state: Mutex::new(ParallelState::new(&mut self.download, known.size)),
            bell: Condvar::new(),
        };
        let Pulled { report, ended } = pull.all(first);
        book(&mut self.report, report);
        // After an unexpected response, a single connection repeats the request and reports the reason.
        self.may_be_pulled = false;
        ended
    }

    /// Receives the body of a response into the destination.
    fn body(
        &mut self,
        connection: &mut FetchConnection,
        head: &ResponseHead,
        from: u64,
        want: Option<u64>,
    ) -> Result<(), FetchError> {
        let framing = head.framing()?;
        let (download, watcher) = (&mut self.download, self.watcher);
        let (resumed, size) = (self.resumed, self.size);
        let fd = download.descriptor()?;
        let end = download.end(std::os::fd::AsFd::as_fd(&fd), from)?;
        let mut note = |moved: u64| {
            download.note(from, from + moved);
            watcher.progress(FetchProgress { resumed, there: download.done().bytes(), size })
        };
        let check = || watcher.check_cancelled();
        let body = ResponseBody {
            connection,
            deadline: NetDeadline { limit: self.options.stall, check: &check },
            way: &self.options.way,
            end,
            note: &mut note,
            report: &mut self.report,
            plans: None,
        };
        body.bring(framing, want).map(drop)
    }

    /// Checks that a response with a usable body is about the listed file.
    fn is_as_listed(
        &self,
        head: &ResponseHead,
        outcome: RangeOutcome,
    ) -> Result<RangeOutcome, FetchError> {
        match (self.listed, &outcome) {
            (Some(listed), RangeOutcome::Piece { total, .. }) => listed.check(head, Some(*total)),
            (Some(listed), RangeOutcome::Whole(size)) => listed.check(head, *size),
            _ => Ok(()),
        }?;
        Ok(outcome)
    }

    /// Discards all local bytes and restarts.
    fn restart(&mut self) -> Result<(), FetchError> {
        self.download.empty()?;
        (self.known, self.size, self.resumed) = (None, None, 0);
        (self.is_conditional, self.own_blocks) = (true, None);
        Ok(())
    }

    /// Records the digest that a response states. If a response about a resumed file states none, the last one remains.
    fn note_digest(&mut self, head: &ResponseHead) -> Result<(), FetchError> {
        let sent = Expected::of_head(head);
        if self.known.is_none() || sent.is_some() {
            self.expected.clone_from(&self.options.expected);
            self.expected.extend(sent);
        }
        if self.options.verify && self.expected.is_empty() && self.own_blocks.is_none() {
            let why = "--verify: the server sends no digest to compare with; start the server with --hash, or give --sha256";
            return Err(FetchError::Unsupported(why.to_owned()));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), FetchError> {
        if let (Some(size), end) = (self.size, self.download.done().end())
            && size != end
        {
            return Err(FetchError::broken(format!("received {end} of {size} bytes")));
        }
        let Some(file) = self.download.file() else { return Ok(()) };
        let check_cancelled = || self.watcher.check_cancelled();
        // For a file of a tree, `--verify` accepts bytes from the page cache, as a local copy does.
        let from_device = self.options.verify && self.listed.is_none();
        for expected in &self.expected {
            self.checked.push(expected.check(file, from_device, &check_cancelled)?);
        }
        if let Some(blocks) = &mut self.own_blocks {
            blocks.check(file, self.options.verify, &check_cancelled)?;
            self.checked.push("blake3");
        }
        Ok(())
    }

    fn end(self, result: Result<(), FetchError>) -> Result<Fetched, Box<FetchFailure>> {
        let Self { download, report, resumed, size, listed, checked, options, .. } = self;
        let fsync = options.fsync;
        let there = download.done().bytes();
        let attributes = listed.map(|listed| listed.attributes);
        let kept_path = listed.and_then(|listed| listed.kept);
        let failed =
            |error, kept, report| Box::new(FetchFailure { error, there, size, kept, report });
        match result {
            Ok(()) => match download.publish(attributes, kept_path, fsync) {
                Ok(refused_xattrs) => {
                    Ok(Fetched { bytes: there, resumed, refused_xattrs, report, checked })
                }
                Err(error) => Err(failed(error, false, report)),
            },
            Err(error) if error.spoils_what_is_here() => {
                let mut download = download;
                drop(download.empty());
                drop(download);
                Err(failed(error, false, report))
            }
            Err(error) => {
                let kept = download.leave();
                Err(failed(error, kept, report))
            }
        }
    }
}
