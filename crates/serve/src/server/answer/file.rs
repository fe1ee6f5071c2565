//! Answers to a request for a file: the file, parts of it, or 304 if the client already has it.

use std::{borrow::Cow, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use thalweg_tree::{Hash, hashing::Digest};

use super::{AnswerContext, PreparedAnswer};
use crate::http::{
    condition::{ConditionOutcome, Validator},
    head::RequestMethod,
    media::{Coding, accepted, content_type},
    range::{ByteRange, WantedRanges, wanted},
    status::HttpStatus,
};
use crate::server::{
    body::{AnswerBody, BodyPart},
    digests::KnownDigest,
    header::AnswerHead,
    log::date,
    open::ServedEntry,
    opened::ServedFile,
};

/// A file, and the data of its headers.
pub struct FileAnswer<'a> {
    context: &'a AnswerContext<'a>,
    path: &'a Path,
    file: Arc<ServedFile>,
    coding: Option<Coding>,
    validator: Validator,
    digest: Option<Digest>,
}

impl<'a> FileAnswer<'a> {
    /// Chooses the file to be sent for this path: `file`, or a compressed variant of it.
    pub fn of(context: &'a AnswerContext<'a>, path: &'a Path, file: Arc<ServedFile>) -> Self {
        let (file, coding) = in_coding(context, path, file);
        let validator = file.version.validator(context.now);
        Self { context, path, file, coding, validator, digest: None }
    }

    /// Evaluates the conditions and ranges of the request, and returns the answer. It may be deferred until the file's
    /// hash is known.
    pub fn prepare(mut self) -> PreparedAnswer {
        let (context, head) = (self.context, self.context.head);
        let ranges = match self.validator.evaluate(head) {
            ConditionOutcome::NotModified => {
                let status = HttpStatus::NOT_MODIFIED;
                return context.with(status, self.described(status), AnswerBody::default());
            }
            ConditionOutcome::Failed => return context.refuse(HttpStatus::CONDITION_FAILED),
            ConditionOutcome::Content { ranges } => ranges,
        };
        if head.wants_digest && !head.without_digest {
            match context.digest(&self.file, Hash::Sha256) {
                KnownDigest::NotYet => return context.later(&self.file, Hash::Sha256),
                KnownDigest::Digest(digest) => self.digest = Some(digest),
                KnownDigest::Nothing => {}
            }
        }
        let range = head.range.as_ref();
        let range = range.filter(|_| ranges && head.method == RequestMethod::Get);
        let size = self.file.version.size;
        match range.map_or(WantedRanges::Whole, |range| wanted(range, size)) {
            WantedRanges::Whole => {
                let whole = AnswerBody::of([self.part(ByteRange { from: 0, to: size })]);
                context.sized(HttpStatus::OK, self.full(HttpStatus::OK, &self.kind()), whole)
            }
            WantedRanges::Nothing => {
                let status = HttpStatus::RANGE_UNSATISFIABLE;
                let range = format_args!("bytes */{size}");
                let head = self.described(status).with("Content-Range", range);
                context.sized(status, head, AnswerBody::default())
            }
            WantedRanges::Parts(parts) => match parts[..] {
                [only] => {
                    let head = self.full(HttpStatus::PARTIAL, &self.kind());
                    let head = head.with("Content-Range", content_range(only, size));
                    context.sized(HttpStatus::PARTIAL, head, AnswerBody::of([self.part(only)]))
                }
                _ => self.several(&parts),
            },
        }
    }

    fn part(&self, range: ByteRange) -> BodyPart {
        BodyPart::File(Arc::clone(&self.file), range)
    }

    /// Returns the media type. [`ServedFile`] caches the type of its own name, so a compressed variant looks up that of
    /// the requested path.
    fn kind(&self) -> Cow<'_, str> {
        match self.coding {
            Some(_) => content_type(self.path).into(),
            None => self.file.kind(self.path).into(),
        }
    }

    /// Returns a head with the headers that every answer about the file has.
    fn described(&self, status: HttpStatus) -> AnswerHead {
        let mut head = self.context.header(status).with("ETag", &self.validator.etag);
        if let Some(modified) = self.validator.modified {
            head = head.with("Last-Modified", date(modified));
        }
        if self.context.site.precompressed {
            head = head.with("Vary", "Accept-Encoding");
        }
        head
    }

    /// Returns the head of an answer with content.
    fn full(&self, status: HttpStatus, kind: &str) -> AnswerHead {
        let mut head = self.described(status).with("Accept-Ranges", "bytes");
        if let Some(digest) = &self.digest {
            let text = STANDARD.encode(digest.bytes());
            head = head.with("Repr-Digest", format_args!("sha-256=:{text}:"));
        }
        if let Some(coding) = self.coding {
            head = head.with("Content-Encoding", coding.name);
        }
        head.with("Content-Type", kind)
    }

    /// Answers with several ranges, each with its own part header (RFC 9110, 14.6).
    fn several(&self, parts: &[ByteRange]) -> PreparedAnswer {
        let (version, kind) = (self.file.version, self.kind());
        // A client finds the end of a part by the length in `Content-Range`, so the file may contain the boundary.
        // The boundary is derived from the entity tag, which a client cannot choose.
        let tag = version.etag(self.context.now);
        let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).collect();
        let boundary = format!("thalweg{tag}");
        let mut pieces = Vec::new();
        for part in parts {
            let range = content_range(*part, version.size);
            let text = format!(
                "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
            );
            pieces.push(BodyPart::Bytes(text.into_bytes()));
            pieces.push(self.part(*part));
        }
        pieces.push(BodyPart::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
        let kind = format!("multipart/byteranges; boundary={boundary}");
        let head = self.full(HttpStatus::PARTIAL, &kind);
        self.context.sized(HttpStatus::PARTIAL, head, AnswerBody::of(pieces))
    }
}

/// Returns the compressed variant of a file, if it is served and the client accepts it. A range request never gets a
/// variant, because its offsets refer to the file that the client named.
fn in_coding(
    context: &AnswerContext<'_>,
    path: &Path,
    file: Arc<ServedFile>,
) -> (Arc<ServedFile>, Option<Coding>) {
    let head = context.head;
    let wished = head.accept_encoding.as_deref();
    let wished = wished.filter(|_| context.site.precompressed && head.range.is_none());
    for coding in accepted(wished.unwrap_or_default()) {
        let mut sibling = path.as_os_str().to_owned();
        sibling.push(coding.suffix);
        if let Ok(ServedEntry::File(file)) = context.find(Path::new(&sibling)) {
            return (file, Some(coding));
        }
    }
    (file, None)
}

fn content_range(part: ByteRange, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.from, part.to - 1)
}
