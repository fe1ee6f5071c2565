//! The first request to a server at the other end of a byte stream: its version, and whether it serves a directory or a
//! file.

use thalweg_core::atomic_file::Destination;
use thalweg_tree::install::{EntryAttributes, EntryXattrs};

use super::{
    FetchError, FetchFailure, FetchOptions, FetchUrl, FetchWatcher, Fetched,
    connect::FetchConnection,
    deadline::{CancelCheck, NetDeadline},
    fetch::{ListedFile, fetch_listed},
    peer::check_format,
    request,
    resume::{self, FileRequest},
};
use crate::{
    manifest::{
        ENTRY_HEADER, ListRecord, ListRequest, MEDIA_TYPE, ManifestEntry, ManifestKind, Meta,
        RecordParser,
    },
    stream::ENDED,
};

/// The root of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRoot {
    Directory,
    File(Box<PeerFile>),
}

/// A file that is served alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFile {
    url: FetchUrl,
    size: u64,
    is_sparse: bool,
    etag: String,
    meta: Meta,
    /// The extended attributes; `None` if they were not requested.
    xattrs: Option<EntryXattrs>,
}

impl PeerFile {
    /// Fetches the file with its mode and time. `owner`: `true` to set its owner too, as far as the kernel permits.
    pub fn fetch(
        &self,
        destination: Destination,
        owner: bool,
        options: &FetchOptions,
        watcher: &dyn FetchWatcher,
    ) -> Result<Fetched, Box<FetchFailure>> {
        let Meta { mode, uid, gid, mtime, nanos } = self.meta;
        let owner = owner.then_some((uid, gid));
        let xattrs = self.xattrs.clone().map(EntryXattrs::settable);
        let attributes = EntryAttributes { mode, owner, mtime: (mtime, nanos), xattrs };
        let (size, etag) = (self.size, &*self.etag);
        let is_sparse = self.is_sparse;
        let listed = ListedFile {
            size,
            etag,
            attributes: &attributes,
            is_sparse,
            kept: None,
            base: None,
            may_continue_base: false,
        };
        fetch_listed(&self.url, destination, options, watcher, Some(&listed))
    }
}

/// Reports the exit status of this client to the server at the other end of a stream. Without the report, the server
/// treats the end of the connection as a failure.
pub fn report_end(
    target: &FetchUrl,
    options: &FetchOptions,
    status: u8,
    check: &CancelCheck<'_>,
) -> Result<(), FetchError> {
    loop {
        match report_once(target, options, status, check) {
            // This channel is closed now, and another one may still be open.
            Err(error) if error.is_passing() => {}
            ended => return ended,
        }
    }
}

fn report_once(
    target: &FetchUrl,
    options: &FetchOptions,
    status: u8,
    check: &CancelCheck<'_>,
) -> Result<(), FetchError> {
    let deadline = NetDeadline { limit: options.stall, check };
    let mut connection = FetchConnection::open(target, options, &deadline)?;
    let target = target.with_query(&format!("{ENDED}{status}"));
    let text = request::text(&target, &FileRequest::ALL, &options.extra, true, None);
    connection.send(text.replacen("GET", "HEAD", 1).as_bytes(), &deadline)?;
    let head = connection.head(&deadline)?;
    connection.finish(&head);
    Ok(())
}

/// Asks the server what it serves. Waits for a login, if the connection needs one.
pub fn root_of(
    target: &FetchUrl,
    list: &ListRequest,
    options: &FetchOptions,
    check: &CancelCheck<'_>,
) -> Result<PeerRoot, FetchError> {
    let deadline = NetDeadline { limit: options.stall, check };
    let mut connection = FetchConnection::open(target, options, &deadline)?;
    let text = request::text(&target.manifest(list), &FileRequest::ALL, &options.extra, true, None);
    connection.send(text.replacen("GET", "HEAD", 1).as_bytes(), &deadline)?;
    let head = connection.head(&deadline)?;
    if matches!(head.status, 200 | 302) {
        check_format(&head, connection.host())?;
    }
    // The response to HEAD has no body.
    connection.finish(&head);
    match (head.status, head.get("location"), head.get("content-type")) {
        (200, _, Some(kind)) if kind.starts_with(MEDIA_TYPE) => Ok(PeerRoot::Directory),
        (302, Some(location), _) => {
            let record = head.get(ENTRY_HEADER).unwrap_or_default();
            let record: Vec<u8> = percent_encoding::percent_decode_str(record).collect();
            match RecordParser::default().next(&record) {
                Ok((
                    ListRecord::Entry(ManifestEntry {
                        kind: ManifestKind::File(file),
                        meta,
                        xattrs,
                        ..
                    }),
                    _,
                )) => {
                    let url = target.join(location)?;
                    if !url.is_beside(target) {
                        return Err(FetchError::broken("the server redirects to another server"));
                    }
                    let etag = file.etag(meta.mtime, meta.nanos);
                    let xattrs = list.xattrs.then_some(xattrs);
                    let (size, is_sparse) = (file.size, file.is_sparse);
                    let file = PeerFile { url, size, is_sparse, etag, meta, xattrs };
                    Ok(PeerRoot::File(Box::new(file)))
                }
                _ => Err(FetchError::broken("the server did not describe the file")),
            }
        }
        (200, ..) => Err(FetchError::broken("the response is not a list of files")),
        (501, ..) if list.copy_links => Err(FetchError::Unsupported(
            "the server does not follow symbolic links; start it with --follow=any".to_owned(),
        )),
        _ => Err(resume::status(&head)),
    }
}
