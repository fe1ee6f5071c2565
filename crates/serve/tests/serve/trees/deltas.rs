//! A changed file over a byte stream: whatever is wrong in the sums of the server, the new file is right.

use std::{
    fs,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use thalweg_serve::{
    blocks::{BlockRequest, MEDIA_TYPE, RollingSum, SUM_BYTES, short},
    manifest::{
        DirectoryContents, FileTag, GroupFilter, ListTotals, ManifestEntry, ManifestKind, Meta,
        RecordWriter,
    },
};
use thalweg_tree::install::EntryXattrs;

use super::support::{
    get_over,
    liar::{LyingServer, ReceivedRequest, honest},
    options,
};
use thalweg_testing::{names, noise};

/// Larger than the size from which files are fetched separately.
const LEN: usize = 17 << 20;

/// An older file, and a newer one that differs in three places.
fn versions() -> [Vec<u8>; 2] {
    let old = noise(LEN, 1);
    let mut new = old.clone();
    for at in [0, LEN / 2, LEN - 1] {
        new[at] = !new[at];
    }
    [old, new]
}

/// Returns the sums of these bytes.
fn sums(request: &BlockRequest, bytes: &[u8]) -> Vec<u8> {
    let sum = |block: &[u8]| {
        [&RollingSum::of(block).to_le_bytes()[..], &short(&request.digest(block))].concat()
    };
    bytes.chunks(request.size as usize).flat_map(sum).collect()
}

/// Returns the digest of the digests of all blocks.
fn root(request: &BlockRequest, bytes: &[u8]) -> [u8; 32] {
    let blocks = bytes.chunks(request.size as usize);
    let digests: Vec<u8> = blocks.flat_map(|block| request.digest(block)).collect();
    *blake3::hash(&digests).as_bytes()
}

fn answer(kind: &str, etag: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nETag: {etag}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = format!("{:x}\r\n", body.len());
    [head.as_bytes(), chunk.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

/// The head of an answer with a list, without its length.
const LIST: &str = concat!(
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.thalweg.list\r\n",
    "Thalweg: 0.0.0; format=4\r\nConnection: close\r\n"
);
/// The tag of the newer file in [`list`].
const ETAG: &str = "\"a-1100000-3b9aca02-3b9aca03\"";

/// Returns a list with the newer file.
fn list() -> Vec<u8> {
    let meta = Meta { mode: 0o644, uid: 0, gid: 0, mtime: 1, nanos: 2 };
    let tag =
        FileTag { size: LEN as u64, inode: 10, changed: (1, 3), linked_on: None, is_sparse: false };
    assert_eq!(tag.etag(meta.mtime, meta.nanos), ETAG);
    let entry = |name: &str, kind| ManifestEntry {
        name: name.into(),
        kind,
        shared_node: None,
        meta,
        xattrs: EntryXattrs::default(),
    };
    let (mut out, mut writer) = (Vec::new(), RecordWriter::default());
    RecordWriter::begin(&mut out);
    writer.entry(&mut out, &entry("", ManifestKind::Directory(DirectoryContents::Listed)));
    writer.group(&mut out, &GroupFilter::NotRequested);
    writer.entry(&mut out, &entry("f", ManifestKind::File(tag)));
    RecordWriter::end(
        &mut out,
        &ListTotals { entries: 2, bytes: LEN as u64, ..ListTotals::default() },
    );
    out
}

/// Function that returns the answer to a request for sums. Its other arguments are the older and the newer version.
type Lie = fn(&BlockRequest, &[u8], &[u8]) -> Vec<u8>;

const LIES: [(&str, Lie); 9] = [
    ("the truth", |request, _, new| {
        let digest = root(request, new);
        answer(MEDIA_TYPE, ETAG, &[&sums(request, new)[..], &digest].concat())
    }),
    ("sums of the older file", |request, old, new| {
        let digest = root(request, new);
        answer(MEDIA_TYPE, ETAG, &[&sums(request, old)[..], &digest].concat())
    }),
    ("another digest", |request, _, new| {
        answer(MEDIA_TYPE, ETAG, &[&sums(request, new)[..], &[0; 32]].concat())
    }),
    ("too few", |request, _, new| answer(MEDIA_TYPE, ETAG, &sums(request, new))),
    ("too many", |request, _, new| {
        answer(MEDIA_TYPE, ETAG, &[sums(request, new), vec![0; 100]].concat())
    }),
    ("noise", |request, _, new| answer(MEDIA_TYPE, ETAG, &noise(sums(request, new).len() + 32, 9))),
    ("another version", |request, old, _| {
        let digest = root(request, old);
        answer(MEDIA_TYPE, "\"b\"", &[&sums(request, old)[..], &digest].concat())
    }),
    ("the file itself", |_, _, new| answer("application/octet-stream", ETAG, new)),
    ("an error", |_, _, _| {
        b"HTTP/1.1 400 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    }),
];

#[test]
fn sums_that_lie_never_make_a_wrong_file() {
    let [old, new] = versions().map(Arc::new);
    for (what, lie) in LIES {
        let list = list();
        let (older, newer) = (Arc::clone(&old), Arc::clone(&new));
        let server = LyingServer::new(move |asked: &ReceivedRequest, stream| {
            let bytes = match asked.path.split_once('?') {
                Some((_, "manifest")) => {
                    let head = format!("{LIST}Content-Length: {}\r\n\r\n", list.len());
                    [head.as_bytes(), &list].concat()
                }
                Some((_, query)) => lie(&BlockRequest::parse(query).unwrap(), &older, &newer),
                None => {
                    let (lines, body) = honest(asked, &newer, ETAG);
                    [lines.as_bytes(), &body].concat()
                }
            };
            drop(stream.write_all(&bytes));
        });
        let place = tempfile::tempdir().unwrap();
        let dst = place.path().join("dst");
        fs::create_dir(&dst).unwrap();
        fs::write(dst.join("f"), &*old).unwrap();
        let mut options = options();
        options.files.retries = 5;
        let fetched = get_over(&server.url("d"), &dst, &options, true).unwrap();
        assert!(fetched.halted.is_none(), "{what}: {:?}", fetched.halted);
        assert_eq!(fetched.missed_count, 0, "{what}: {:?}", fetched.missed);
        assert!(fs::read(dst.join("f")).unwrap() == *new, "{what}: a wrong file");
        assert_eq!(names(&dst), ["f"], "{what}");
        let asked = server.asked();
        assert!(asked.iter().any(|asked| asked.path.contains("?blocks=")), "{what}");
        if what == "the truth" {
            // Only the three blocks that differ are requested.
            let ranges = asked.iter().filter_map(ReceivedRequest::range);
            let bytes: usize = ranges.map(|(from, to)| to.unwrap_or(LEN) - from).sum();
            assert_eq!(bytes, 3 * 4096);
        }
    }
}

/// The sums of the server make the client take a wrong block. The first run then ends before the file is complete.
#[test]
fn a_continued_delta_is_compared_as_a_whole() {
    let [old, new] = versions().map(Arc::new);
    let is_broken = Arc::new(AtomicBool::new(true));
    let (older, newer, breaks) = (Arc::clone(&old), Arc::clone(&new), Arc::clone(&is_broken));
    let list = list();
    let server = LyingServer::new(move |asked: &ReceivedRequest, stream| {
        let bytes = match asked.path.split_once('?') {
            Some((_, "manifest")) => {
                let head = format!("{LIST}Content-Length: {}\r\n\r\n", list.len());
                [head.as_bytes(), &list].concat()
            }
            Some((_, query)) => {
                let request = BlockRequest::parse(query).unwrap();
                let mut found = sums(&request, &newer);
                if breaks.load(Relaxed) {
                    let at = LEN / 2 / request.size as usize * SUM_BYTES;
                    let wrong = sums(&request, &older);
                    found[at..][..SUM_BYTES].copy_from_slice(&wrong[at..][..SUM_BYTES]);
                }
                answer(MEDIA_TYPE, ETAG, &[&found[..], &root(&request, &newer)].concat())
            }
            None if breaks.load(Relaxed) => Vec::new(),
            None => {
                let (lines, body) = honest(asked, &newer, ETAG);
                [lines.as_bytes(), &body].concat()
            }
        };
        drop(stream.write_all(&bytes));
    });
    for verify in [false, true] {
        is_broken.store(true, Relaxed);
        let place = tempfile::tempdir().unwrap();
        let dst = place.path().join("dst");
        fs::create_dir(&dst).unwrap();
        fs::write(dst.join("f"), &*old).unwrap();
        let get = |retries| {
            let mut options = options();
            options.files.retries = retries;
            options.files.verify = verify;
            get_over(&server.url("d"), &dst, &options, true).unwrap()
        };
        let first = get(0);
        assert!(first.halted.is_some() || first.missed_count == 1, "{first:?}");
        assert!(fs::read(dst.join("f")).unwrap() == *old);
        assert!(names(&dst).len() > 1, "the partial file is kept");
        is_broken.store(false, Relaxed);
        let second = get(5);
        // The whole file is fetched, and this server sends no digest of it.
        assert_eq!(second.halted.is_some(), verify, "{second:?}");
        let wanted = if verify { &old } else { &new };
        assert!(fs::read(dst.join("f")).unwrap() == **wanted, "a wrong file");
        if !verify {
            assert_eq!(names(&dst), ["f"]);
        }
    }
}
