//! Memory use of a list. The test is a separate program, because the memory of other tests would
//! count too.

use std::{fs, io::Write as _};

use thalweg_serve::manifest::{
    DirectoryContents, GroupFilter, ListTotals, ManifestEntry, ManifestKind, Meta, RecordWriter,
};
use thalweg_testing::peak_resident;
use thalweg_tree::install::EntryXattrs;

use crate::trees::{get, liar::LyingServer, options};

#[test]
fn a_long_list_costs_no_memory_that_grows_with_it() {
    const COUNT: usize = 300_000;
    let _alone = thalweg_testing::alone();
    let meta = Meta { mode: 0o755, mtime: 1, nanos: 2, ..Meta::default() };
    let kind = ManifestKind::Directory(DirectoryContents::Listed);
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.thalweg.list\r\n\r\n";
    let (mut answer, mut writer) = (head.to_vec(), RecordWriter::default());
    RecordWriter::begin(&mut answer);
    let top = ManifestEntry {
        name: Vec::new(),
        kind: kind.clone(),
        shared_node: None,
        meta,
        xattrs: EntryXattrs::default(),
    };
    writer.entry(&mut answer, &top);
    writer.group(&mut answer, &GroupFilter::NotRequested);
    for n in 0..COUNT {
        let name = format!("{n:08}{}", "x".repeat(32)).into_bytes();
        writer.entry(&mut answer, &ManifestEntry { name, ..top.clone() });
    }
    (0..COUNT).for_each(|_| writer.group(&mut answer, &GroupFilter::NotRequested));
    // The totals are wrong, so that the client reads the whole list and creates nothing.
    RecordWriter::end(&mut answer, &ListTotals { entries: 1, bytes: 0, ..ListTotals::default() });
    let length = answer.len() as u64;
    let server = LyingServer::new(move |_, stream| drop(stream.write_all(&answer)));
    let place = tempfile::tempdir().unwrap();
    let before = peak_resident();
    let error = get(&server.url("d/"), &place.path().join("dst"), &options()).unwrap_err();
    assert!(error.to_string().contains("does not match"), "{error}");
    let grown = peak_resident() - before;
    assert!(grown < length / 2, "{grown} bytes for a list of {length}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}
