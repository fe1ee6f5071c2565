//! Builds the answer to a request: finds the file, evaluates the conditions and selects the range.

mod file;

use std::{
    cell::RefCell,
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use rustix::fs::{Stat, fstat};
use thalweg_sys::Errno;
use thalweg_tree::{
    ExcludePatterns, Filter, Hash,
    install::{Beneath, EntryXattrs, FollowLinks},
    sync::{DirectoryFilter, file_system_of},
};

use super::{
    archive::Archive,
    block_sums::BlockSums,
    body::{AnswerBody, BodyPart, Supply},
    digests::{HashedFile, KnownDigest},
    header::AnswerHead,
    lines::ManifestLines,
    listing::{self, Listing, ListingFormat},
    log::date,
    open::{ServedEntry, refusal},
    opened::ServedFile,
    page,
    site::ServedSite,
    store::Store,
    walk::{TreeWalk, WalkOptions},
};
use crate::{
    blocks::{self, BlockRequest},
    http::{
        head::{RequestHead, RequestMethod},
        status::HttpStatus,
    },
    manifest::{self, LONGEST_XATTRS, ListRequest, ManifestEntry, RecordWriter, encoded, has_room},
};
use file::FileAnswer;

/// An answer that is ready to be sent.
#[derive(Debug)]
pub struct PreparedAnswer {
    pub status: HttpStatus,
    pub head: Vec<u8>,
    pub body: AnswerBody,
    /// `true` if another request may follow on this connection.
    pub keep_alive: bool,
    /// If set, the answer must wait until this hash of this file has been computed.
    pub waits: Option<HashedFile>,
}

/// A request that is being processed.
pub struct AnswerContext<'a> {
    pub site: &'a Arc<ServedSite>,
    store: &'a RefCell<Store>,
    pub head: &'a RequestHead,
    pub now: SystemTime,
    keep_alive: bool,
}

/// Path of the metrics page.
const METRICS: &str = "-/metrics";

/// Largest size of the attributes of a single served file, in bytes.
const LONGEST_IN_HEAD: usize = 4 << 10;

/// Seconds in `Retry-After` of a 503 answer.
const RETRY_AFTER: u32 = 2;

/// Answers a request. `keep_alive`: `true` if the server is willing to keep the connection open.
pub fn answer(
    site: &Arc<ServedSite>,
    store: &RefCell<Store>,
    head: &RequestHead,
    keep_alive: bool,
) -> PreparedAnswer {
    let keep_alive = keep_alive && head.keep_alive && !head.has_body;
    let asked = AnswerContext { site, store, head, now: SystemTime::now(), keep_alive };
    let mut answer = asked.answer().unwrap_or_else(|status| asked.refuse(status));
    if head.method == RequestMethod::Head {
        answer.body = AnswerBody::default();
    }
    answer
}

/// Returns the answer to an invalid or incomplete request. The connection ends after it.
pub fn refuse(status: HttpStatus) -> PreparedAnswer {
    let (head, body) = error(status, &date(SystemTime::now()), "close");
    PreparedAnswer { status, head, body, keep_alive: false, waits: None }
}

fn error(status: HttpStatus, date: &str, connection: &str) -> (Vec<u8>, AnswerBody) {
    let text = format!("{} {}\n", status.0, status.1);
    let mut head = AnswerHead::new(status, date).with("Connection", connection);
    if status == HttpStatus::NOT_ALLOWED {
        head = head.with("Allow", "GET, HEAD");
    }
    if status == HttpStatus::UNAVAILABLE {
        head = head.with("Retry-After", RETRY_AFTER);
    }
    let head = head.with("Content-Type", "text/plain; charset=utf-8");
    (
        head.with("Content-Length", text.len()).bytes(),
        AnswerBody::of([BodyPart::Bytes(text.into_bytes())]),
    )
}

impl AnswerContext<'_> {
    fn answer(&self) -> Result<PreparedAnswer, HttpStatus> {
        let (site, target) = (self.site, &self.head.target);
        if site.metrics && target.path == Path::new(METRICS) {
            let text = site.accounts.page(site.names.held()).into_bytes();
            return Ok(self.text("text/plain; version=0.0.4", text));
        }
        if site.is_stream && site.stream_reports.note_end(target.query.as_deref()) {
            // No request follows. Closing the connection also ends a remote command that waits for more input.
            let last = AnswerContext { keep_alive: false, ..*self };
            return Ok(last.text("text/plain; charset=utf-8", Vec::new()));
        }
        if target.is_hidden() && !site.hidden {
            return Err(HttpStatus::NOT_FOUND);
        }
        if let Some(only) = site.root.only.as_ref().filter(|_| target.path.as_os_str().is_empty()) {
            return Ok(self.only_file(only));
        }
        match self.find(&target.path)? {
            ServedEntry::File(_) if target.is_directory => Err(HttpStatus::NOT_FOUND),
            ServedEntry::File(file) => Ok(self
                .digits(&file)
                .or_else(|| self.block_sums(&file))
                .unwrap_or_else(|| FileAnswer::of(self, &target.path, file).prepare())),
            ServedEntry::Directory(_) if !target.is_directory => {
                let query = target.query.as_ref().map(|query| format!("?{query}"));
                let path = encoded(&target.path);
                // A name always follows the leading slash, so `//host` cannot redirect to another host.
                Ok(self.redirect(&format!("/{path}/{}", query.unwrap_or_default())))
            }
            ServedEntry::Directory(fd) => self.directory(&target.path, &fd),
        }
    }

    pub fn find(&self, path: &Path) -> Result<ServedEntry, HttpStatus> {
        self.site.root.find(path, Some(self.store))
    }

    fn directory(&self, path: &Path, fd: &OwnedFd) -> Result<PreparedAnswer, HttpStatus> {
        let site = self.site;
        let question = self.head.target.query.as_deref().unwrap_or_default();
        let list = ListRequest::parse(question)
            .filter(|list| self.site.is_stream || *list == ListRequest::default());
        let is_of_directory = list.is_some() || matches!(question, "json" | "tar");
        if !is_of_directory {
            let index = path.join("index.html");
            if let Ok(ServedEntry::File(file)) = self.find(&index) {
                return Ok(FileAnswer::of(self, &index, file).prepare());
            }
        }
        if !site.listing {
            return Err(HttpStatus::FORBIDDEN);
        }
        // Permission errors must become a status code, so the directory is opened before anything is sent.
        let directory = listing::open(fd, OsStr::new(".")).map_err(refusal)?;
        let filter = list.as_ref().map(|list| self.filter(list, fd)).transpose()?.flatten();
        let stat = fstat(fd).map_err(refusal)?;
        let options = match &list {
            Some(list) => WalkOptions {
                filter,
                xattrs: list.xattrs,
                specials: list.specials,
                copy_links: list.copy_links,
                device: list.one_file_system.then_some(stat.st_dev),
            },
            None => WalkOptions::default(),
        };
        if options.copy_links && site.root.follows() == FollowLinks::Never {
            return Err(HttpStatus::NOT_IMPLEMENTED);
        }
        let xattrs = options.xattrs.then(|| EntryXattrs::of(directory.as_fd())).transpose();
        let source = self.list_on_stream().and_then(|_| file_system_of(directory.as_fd()));
        let site = Arc::clone(site);
        let tree = |site| TreeWalk::of(site, path.to_owned(), options);
        let listing = |site, format| {
            Box::new(Listing::of(site, path.to_owned(), directory, format)) as Box<dyn Supply>
        };
        Ok(match question {
            _ if list.is_some() => {
                let xattrs = xattrs.map_err(refusal)?.unwrap_or_default();
                let lines = ManifestLines::of(tree(site), stat, xattrs);
                let describe = |head: AnswerHead| match source {
                    Some(source) => head.with(manifest::SOURCE_HEADER, source),
                    None => head,
                };
                self.stream_about(manifest::MEDIA_TYPE, describe, Box::new(lines))
            }
            "tar" => self.stream("application/x-tar", None, Box::new(Archive::of(tree(site)))),
            "json" => self.stream("application/json", None, listing(site, ListingFormat::Json)),
            _ => {
                let kind = "text/html; charset=utf-8";
                self.stream(kind, Some(page::POLICY), listing(site, ListingFormat::Page))
            }
        })
    }

    /// Returns the filter of a list. Fails if the filter files are hidden files, and the server does not serve such
    /// files.
    fn filter(
        &self,
        list: &ListRequest,
        directory: &OwnedFd,
    ) -> Result<Option<DirectoryFilter>, HttpStatus> {
        let mut patterns = ExcludePatterns::default();
        list.exclude.iter().for_each(|pattern| patterns.add(pattern.as_bytes()));
        let caller = Some(Arc::new(patterns) as Arc<dyn Filter>);
        let Some(name) = &list.filter_file else {
            return Ok((!list.exclude.is_empty()).then(|| DirectoryFilter::received(caller)));
        };
        if name.as_bytes().starts_with(b".") && !self.site.hidden {
            return Err(HttpStatus::FORBIDDEN);
        }
        let fd = listing::open(directory, OsStr::new(".")).map_err(refusal)?;
        // Follows the links to filter files as the walk does.
        let links = if list.copy_links { self.site.root.follows() } else { FollowLinks::Never };
        let beneath = Beneath::new(fd, links);
        let filter = DirectoryFilter::below(beneath, Path::new(""), name.clone(), caller);
        filter.map(Some).map_err(|_| HttpStatus::BAD_REQUEST)
    }

    /// Answers `?digest=blake3` with the hash of the file in hexadecimal digits.
    fn digits(&self, file: &Arc<ServedFile>) -> Option<PreparedAnswer> {
        let name = self.head.target.query.as_ref()?.strip_prefix("digest=")?;
        let hash = [("sha-256", Hash::Sha256), ("blake3", Hash::Blake3), ("xxh3", Hash::Xxh3)];
        let (_, hash) = hash.into_iter().find(|(known, _)| *known == name)?;
        self.site.digests.as_ref()?;
        if self.head.without_digest {
            return Some(self.refuse(HttpStatus::UNAVAILABLE));
        }
        Some(match self.digest(file, hash) {
            KnownDigest::Digest(digest) => {
                self.text("text/plain; charset=utf-8", format!("{digest}\n").into_bytes())
            }
            KnownDigest::Nothing => self.refuse(HttpStatus::UNAVAILABLE),
            KnownDigest::NotYet => self.later(file, hash),
        })
    }

    /// Answers `?blocks=SIZE-KEY` with the sums of the blocks of the file. Only a client on a byte stream may send this
    /// request, because it makes the server read the whole file.
    fn block_sums(&self, file: &Arc<ServedFile>) -> Option<PreparedAnswer> {
        let request = BlockRequest::parse(self.head.target.query.as_ref()?)?;
        if !self.site.is_stream {
            return None;
        }
        if request.count(file.version.size).is_none() {
            return Some(self.refuse(HttpStatus::BAD_REQUEST));
        }
        let etag = file.version.etag(self.now);
        let sums = Box::new(BlockSums::of(Arc::clone(file), request));
        Some(self.stream_about(blocks::MEDIA_TYPE, |head| head.with("ETag", etag), sums))
    }

    /// Returns the hash of a file, if the server offers hashes.
    pub fn digest(&self, file: &ServedFile, hash: Hash) -> KnownDigest {
        self.site.digests.as_ref().map_or(KnownDigest::Nothing, |digests| digests.known(file, hash))
    }

    /// Returns an answer that waits for a hash.
    pub fn later(&self, file: &Arc<ServedFile>, hash: Hash) -> PreparedAnswer {
        let waits = Some(HashedFile { file: Arc::clone(file), hash });
        let (status, head, body) = (HttpStatus::OK, Vec::new(), AnswerBody::default());
        PreparedAnswer { status, head, body, keep_alive: self.keep_alive, waits }
    }

    fn text(&self, kind: &str, text: Vec<u8>) -> PreparedAnswer {
        let head = self.header(HttpStatus::OK).with("Content-Type", kind);
        let head = head.with("Cache-Control", "no-cache");
        self.sized(HttpStatus::OK, head, AnswerBody::of([BodyPart::Bytes(text)]))
    }

    /// Redirects to the only file that is served. If the client requests a list on a byte stream, the answer also
    /// describes the file, or is a list instead of a redirect.
    fn only_file(&self, only: &OsStr) -> PreparedAnswer {
        let path = Path::new(only);
        let mut head = self.header(HttpStatus::FOUND);
        match self.list_on_stream() {
            Some(list) if list.as_entry => {
                let entry = self.only_entry(only, &list);
                return self.text(manifest::MEDIA_TYPE, ManifestLines::of_entry(entry.as_ref()));
            }
            Some(list) => {
                if let Some((stat, xattrs)) = self.look_at_file(path, &list) {
                    let mut record = Vec::new();
                    // Longer attributes do not fit into the head of an answer.
                    let xattrs = xattrs.ok().filter(|xattrs| has_room(xattrs, LONGEST_IN_HEAD));
                    let entry = ManifestLines::of_file(only, &stat, xattrs.unwrap_or_default());
                    RecordWriter::default().entry(&mut record, &entry);
                    let record = encoded(Path::new(OsStr::from_bytes(&record)));
                    head = head.with(manifest::ENTRY_HEADER, record);
                }
            }
            None => {}
        }
        let head = head.with("Location", format_args!("/{}", encoded(path)));
        self.sized(HttpStatus::FOUND, head, AnswerBody::default())
    }

    /// Returns the entry of the only file. Returns `None` if the file or its attributes cannot be read.
    fn only_entry(&self, only: &OsStr, list: &ListRequest) -> Option<ManifestEntry> {
        let (stat, xattrs) = self.look_at_file(Path::new(only), list)?;
        let xattrs = xattrs.ok().filter(|xattrs| has_room(xattrs, LONGEST_XATTRS))?;
        Some(ManifestLines::of_file(only, &stat, xattrs))
    }

    /// Returns the metadata of a served file, and its extended attributes if the client requests them.
    fn look_at_file(
        &self,
        path: &Path,
        list: &ListRequest,
    ) -> Option<(Stat, Result<EntryXattrs, Errno>)> {
        let Ok(ServedEntry::File(file)) = self.find(path) else { return None };
        let stat = fstat(&*file).ok()?;
        let xattrs = list.xattrs.then(|| EntryXattrs::of((*file).as_fd()));
        Some((stat, xattrs.unwrap_or_else(|| Ok(EntryXattrs::default()))))
    }

    /// Returns the request for a list, if it came over a byte stream.
    fn list_on_stream(&self) -> Option<ListRequest> {
        let query = self.head.target.query.as_deref().filter(|_| self.site.is_stream)?;
        ListRequest::parse(query)
    }

    fn redirect(&self, to: &str) -> PreparedAnswer {
        self.sized(
            HttpStatus::FOUND,
            self.header(HttpStatus::FOUND).with("Location", to),
            AnswerBody::default(),
        )
    }

    pub fn refuse(&self, status: HttpStatus) -> PreparedAnswer {
        let (head, body) = error(status, self.store.borrow_mut().date(self.now), self.connection());
        PreparedAnswer { status, head, body, keep_alive: self.keep_alive, waits: None }
    }

    pub fn header(&self, status: HttpStatus) -> AnswerHead {
        let mut head = AnswerHead::new(status, self.store.borrow_mut().date(self.now));
        if self.list_on_stream().is_some() {
            let (version, format) = (env!("CARGO_PKG_VERSION"), manifest::FORMAT);
            head = head.with(manifest::PEER_HEADER, format_args!("{version}; format={format}"));
        }
        let head = head.with("X-Content-Type-Options", "nosniff");
        // HTTP/1.1 keeps connections open by default, so no header is needed.
        if self.keep_alive && !self.head.is_old {
            head
        } else {
            head.with("Connection", self.connection())
        }
    }

    fn connection(&self) -> &'static str {
        if self.keep_alive { "keep-alive" } else { "close" }
    }

    pub fn sized(&self, status: HttpStatus, head: AnswerHead, body: AnswerBody) -> PreparedAnswer {
        let head = head.with("Content-Length", body.len());
        self.with(status, head, body)
    }

    /// Answers with a body of unknown length. For HTTP/1.0 clients, which do not know chunks, the end of the connection
    /// ends the body.
    fn stream(&self, kind: &str, policy: Option<&str>, supply: Box<dyn Supply>) -> PreparedAnswer {
        let with_policy = |head: AnswerHead| match policy {
            Some(policy) => head.with("Content-Security-Policy", policy),
            None => head,
        };
        self.stream_about(kind, with_policy, supply)
    }

    /// Variant of [`Self::stream`] in which `describe` adds headers.
    fn stream_about(
        &self,
        kind: &str,
        describe: impl FnOnce(AnswerHead) -> AnswerHead,
        supply: Box<dyn Supply>,
    ) -> PreparedAnswer {
        let in_chunks = !self.head.is_old;
        let keep_alive = self.keep_alive && in_chunks;
        let asked = AnswerContext { keep_alive, ..*self };
        let mut head = describe(asked.header(HttpStatus::OK).with("Content-Type", kind));
        // Caches must not reuse the body, because it is generated for every request.
        head = head.with("Cache-Control", "no-cache");
        if in_chunks {
            head = head.with("Transfer-Encoding", "chunked");
        }
        asked.with(HttpStatus::OK, head, AnswerBody::made_by(supply, in_chunks))
    }

    pub fn with(&self, status: HttpStatus, head: AnswerHead, body: AnswerBody) -> PreparedAnswer {
        PreparedAnswer {
            status,
            head: head.bytes(),
            body,
            keep_alive: self.keep_alive,
            waits: None,
        }
    }
}
