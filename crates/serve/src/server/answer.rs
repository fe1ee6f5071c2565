//! Builds the answer to a request: finds the file, evaluates the conditions and selects the range.

use std::{cell::RefCell, ffi::OsStr, os::fd::OwnedFd, path::Path, sync::Arc, time::SystemTime};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::fs::fstat;
use thalweg_tree::Hash;

use super::{
    archive::Archive,
    body::{AnswerBody, BodyPart, Supply},
    digests::KnownDigest,
    header::AnswerHead,
    lines::ManifestLines,
    listing::{self, Listing, ListingFormat},
    log::date,
    open::{ServedEntry, refusal},
    opened::ServedFile,
    page,
    site::ServedSite,
    store::Store,
    walk::TreeWalk,
};
use crate::{
    http::{
        condition,
        head::{RequestHead, RequestMethod},
        media::{Coding, accepted, content_type},
        range::{ByteRange, WantedRanges, wanted},
        status::HttpStatus,
    },
    manifest::{self, encoded},
};

/// An answer that is ready to be sent.
#[derive(Debug)]
pub struct PreparedAnswer {
    pub status: HttpStatus,
    pub head: Vec<u8>,
    pub body: AnswerBody,
    /// `true` if another request may follow on this connection.
    pub keep_alive: bool,
    /// If set, the answer must wait until this hash of this file has been computed.
    pub waits: Option<(Arc<ServedFile>, Hash)>,
}

/// A request that is being processed.
struct AnswerContext<'a> {
    site: &'a Arc<ServedSite>,
    store: &'a RefCell<Store>,
    head: &'a RequestHead,
    now: SystemTime,
    keep_alive: bool,
}

/// Path of the metrics page.
const METRICS: &str = "-/metrics";

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
        if target.is_hidden() && !site.hidden {
            return Err(HttpStatus::NOT_FOUND);
        }
        if let Some(only) = site.root.only.as_ref().filter(|_| target.path.as_os_str().is_empty()) {
            return Ok(self.redirect(&format!("/{}", encoded(Path::new(only)))));
        }
        match self.find(&target.path)? {
            ServedEntry::File(_) if target.is_folder => Err(HttpStatus::NOT_FOUND),
            ServedEntry::File(file) => {
                Ok(self.digits(&file).unwrap_or_else(|| self.file(&target.path, file)))
            }
            ServedEntry::Folder(_) if !target.is_folder => {
                let query = target.query.as_ref().map(|query| format!("?{query}"));
                let path = encoded(&target.path);
                // A name always follows the leading slash, so `//host` cannot redirect to another host.
                Ok(self.redirect(&format!("/{path}/{}", query.unwrap_or_default())))
            }
            ServedEntry::Folder(fd) => self.folder(&target.path, &fd),
        }
    }

    fn find(&self, path: &Path) -> Result<ServedEntry, HttpStatus> {
        self.site.root.find(path, Some(self.store))
    }

    fn folder(&self, path: &Path, fd: &OwnedFd) -> Result<PreparedAnswer, HttpStatus> {
        let site = self.site;
        let question = self.head.target.query.as_deref().unwrap_or_default();
        let is_of_folder = matches!(question, "json" | "manifest" | "tar");
        if !is_of_folder {
            let index = path.join("index.html");
            if let Ok(ServedEntry::File(file)) = self.find(&index) {
                return Ok(self.file(&index, file));
            }
        }
        if !site.listing {
            return Err(HttpStatus::FORBIDDEN);
        }
        // Permission errors must become a status code, so the directory is opened before anything is sent.
        let directory = listing::open(fd, OsStr::new(".")).map_err(refusal)?;
        let site = Arc::clone(site);
        let tree = |site| TreeWalk::of(site, path.to_owned());
        let listing = |site, format| {
            Box::new(Listing::of(site, path.to_owned(), directory, format)) as Box<dyn Supply>
        };
        Ok(match question {
            "manifest" => {
                let lines = ManifestLines::of(tree(site), fstat(fd).map_err(refusal)?);
                self.stream((manifest::MEDIA_TYPE, None), Box::new(lines))
            }
            "tar" => self.stream(("application/x-tar", None), Box::new(Archive::of(tree(site)))),
            "json" => self.stream(("application/json", None), listing(site, ListingFormat::Json)),
            _ => {
                let kind = ("text/html; charset=utf-8", Some(page::POLICY));
                self.stream(kind, listing(site, ListingFormat::Page))
            }
        })
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

    /// Returns the hash of a file, if the server offers hashes.
    fn digest(&self, file: &ServedFile, hash: Hash) -> KnownDigest {
        self.site.digests.as_ref().map_or(KnownDigest::Nothing, |digests| digests.known(file, hash))
    }

    /// Returns an answer that waits for a hash.
    fn later(&self, file: &Arc<ServedFile>, hash: Hash) -> PreparedAnswer {
        let waits = Some((Arc::clone(file), hash));
        let (status, head, body) = (HttpStatus::OK, Vec::new(), AnswerBody::default());
        PreparedAnswer { status, head, body, keep_alive: self.keep_alive, waits }
    }

    /// Answers with a file, a part of it, or 304.
    fn file(&self, path: &Path, file: Arc<ServedFile>) -> PreparedAnswer {
        let (file, coding) = self.in_coding(path, file);
        let size = file.version.size;
        let validator = file.version.validator(self.now);
        let described = |status| {
            let mut head = self.header(status).with("ETag", &validator.etag);
            if let Some(modified) = validator.modified {
                head = head.with("Last-Modified", date(modified));
            }
            if self.site.precompressed {
                head = head.with("Vary", "Accept-Encoding");
            }
            head
        };
        let ranges = match validator.judge(self.head) {
            condition::ConditionOutcome::NotModified => {
                return self.with(
                    HttpStatus::NOT_MODIFIED,
                    described(HttpStatus::NOT_MODIFIED),
                    AnswerBody::default(),
                );
            }
            condition::ConditionOutcome::Failed => {
                return self.refuse(HttpStatus::CONDITION_FAILED);
            }
            condition::ConditionOutcome::Content { ranges } => ranges,
        };
        let range =
            self.head.range.as_ref().filter(|_| ranges && self.head.method == RequestMethod::Get);
        let known = || self.digest(&file, Hash::Sha256);
        let wants_digest = self.head.wants_digest && !self.head.without_digest;
        let digest = match wants_digest.then(known) {
            Some(KnownDigest::NotYet) => return self.later(&file, Hash::Sha256),
            Some(KnownDigest::Digest(digest)) => Some(digest),
            Some(KnownDigest::Nothing) | None => None,
        };
        let full = |status| {
            let mut head = described(status).with("Accept-Ranges", "bytes");
            if let Some(digest) = &digest {
                let text = STANDARD.encode(digest.bytes());
                head = head.with("Repr-Digest", format_args!("sha-256=:{text}:"));
            }
            match coding {
                Some(coding) => head.with("Content-Encoding", coding.name),
                None => head,
            }
        };
        // An open file caches the media type for its own name only, so a compressed variant needs a new look-up.
        let kind = match coding {
            Some(_) => &content_type(path),
            None => file.kind(path),
        };
        let part = |stretch| BodyPart::File(Arc::clone(&file), stretch);
        match range.map_or(WantedRanges::Whole, |range| wanted(range, size)) {
            WantedRanges::Whole => {
                let head = full(HttpStatus::OK).with("Content-Type", kind);
                let whole = ByteRange { from: 0, to: size };
                self.sized(HttpStatus::OK, head, AnswerBody::of([part(whole)]))
            }
            WantedRanges::Nothing => {
                let status = HttpStatus::RANGE_UNSATISFIABLE;
                let head = described(status).with("Content-Range", format_args!("bytes */{size}"));
                self.sized(status, head, AnswerBody::default())
            }
            WantedRanges::Parts(parts) => match parts[..] {
                [only] => {
                    let head = full(HttpStatus::PARTIAL).with("Content-Type", kind);
                    let head = head.with("Content-Range", content_range(only, size));
                    self.sized(HttpStatus::PARTIAL, head, AnswerBody::of([part(only)]))
                }
                _ => self.several(full(HttpStatus::PARTIAL), kind, &file, &parts),
            },
        }
    }

    /// Answers with several ranges, each with its own part header (RFC 9110, 14.6).
    fn several(
        &self,
        head: AnswerHead,
        kind: &str,
        file: &Arc<ServedFile>,
        parts: &[ByteRange],
    ) -> PreparedAnswer {
        // A part ends after the length in its `Content-Range`, so the boundary may occur inside the file.
        // It is derived from the entity tag, which a client cannot choose.
        let tag: String =
            file.version.etag(self.now).chars().filter(char::is_ascii_alphanumeric).collect();
        let boundary = format!("thalweg{tag}");
        let size = file.version.size;
        let mut pieces = Vec::new();
        for part in parts {
            let range = content_range(*part, size);
            let text = format!(
                "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
            );
            pieces.push(BodyPart::Bytes(text.into_bytes()));
            pieces.push(BodyPart::File(Arc::clone(file), *part));
        }
        pieces.push(BodyPart::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
        let kind = format!("multipart/byteranges; boundary={boundary}");
        self.sized(HttpStatus::PARTIAL, head.with("Content-Type", kind), AnswerBody::of(pieces))
    }

    /// Returns the compressed variant of a file, if it is served and the client accepts it. Never for range requests: their
    /// offsets refer to the file that the client named.
    fn in_coding(&self, path: &Path, file: Arc<ServedFile>) -> (Arc<ServedFile>, Option<Coding>) {
        let wished = self.head.accept_encoding.as_deref();
        let wished = wished.filter(|_| self.site.precompressed && self.head.range.is_none());
        for coding in accepted(wished.unwrap_or_default()) {
            let mut sibling = path.as_os_str().to_owned();
            sibling.push(coding.suffix);
            if let Ok(ServedEntry::File(file)) = self.find(Path::new(&sibling)) {
                return (file, Some(coding));
            }
        }
        (file, None)
    }

    fn text(&self, kind: &str, text: Vec<u8>) -> PreparedAnswer {
        let head = self.header(HttpStatus::OK).with("Content-Type", kind);
        let head = head.with("Cache-Control", "no-cache");
        self.sized(HttpStatus::OK, head, AnswerBody::of([BodyPart::Bytes(text)]))
    }

    fn redirect(&self, to: &str) -> PreparedAnswer {
        self.sized(
            HttpStatus::FOUND,
            self.header(HttpStatus::FOUND).with("Location", to),
            AnswerBody::default(),
        )
    }

    fn refuse(&self, status: HttpStatus) -> PreparedAnswer {
        let (head, body) = error(status, self.store.borrow_mut().date(self.now), self.connection());
        PreparedAnswer { status, head, body, keep_alive: self.keep_alive, waits: None }
    }

    fn header(&self, status: HttpStatus) -> AnswerHead {
        let head = AnswerHead::new(status, self.store.borrow_mut().date(self.now));
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

    fn sized(&self, status: HttpStatus, head: AnswerHead, body: AnswerBody) -> PreparedAnswer {
        let head = head.with("Content-Length", body.len());
        self.with(status, head, body)
    }

    /// Answers with a body of unknown length. For HTTP/1.0 clients, which do not know chunks, the end of the connection ends the
    /// body.
    fn stream(
        &self,
        (kind, policy): (&str, Option<&str>),
        supply: Box<dyn Supply>,
    ) -> PreparedAnswer {
        let in_chunks = !self.head.is_old;
        let keep_alive = self.keep_alive && in_chunks;
        let asked = AnswerContext { keep_alive, ..*self };
        let mut head = asked.header(HttpStatus::OK).with("Content-Type", kind);
        if let Some(policy) = policy {
            head = head.with("Content-Security-Policy", policy);
        }
        // The body is generated for every request.
        head = head.with("Cache-Control", "no-cache");
        if in_chunks {
            head = head.with("Transfer-Encoding", "chunked");
        }
        asked.with(HttpStatus::OK, head, AnswerBody::made_by(supply, in_chunks))
    }

    fn with(&self, status: HttpStatus, head: AnswerHead, body: AnswerBody) -> PreparedAnswer {
        PreparedAnswer {
            status,
            head: head.bytes(),
            body,
            keep_alive: self.keep_alive,
            waits: None,
        }
    }
}

fn content_range(part: ByteRange, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.from, part.to - 1)
}
