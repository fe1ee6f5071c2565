//! Tests guarantees of the library's functions that the examples in their documentation do not show.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use thalweg::{Error, Guarantees, Side, copy, copy_file, copy_tree};

#[test]
fn a_copy_begins_where_the_files_stand_and_leaves_them_behind_what_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("from"), "0123456789").unwrap();
    let mut from = File::open(folder.path().join("from")).unwrap();
    let mut to = File::create(folder.path().join("to")).unwrap();
    from.seek(SeekFrom::Start(4)).unwrap();
    to.write_all(b"ab").unwrap();
    assert_eq!(copy(&from, &to, Guarantees::default()).unwrap().bytes, 6);
    assert_eq!((from.stream_position().unwrap(), to.stream_position().unwrap()), (10, 8));
    assert_eq!(copy(&from, &to, Guarantees::default()).unwrap().bytes, 0, "nothing is left");
    assert_eq!(fs::read(folder.path().join("to")).unwrap(), b"ab456789");
}

#[test]
fn bytes_go_through_pipes_and_into_files_that_are_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "old ").unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"new").unwrap();
    drop(writer);
    let appended = File::options().append(true).open(&log).unwrap();
    assert_eq!(copy(&reader, &appended, Guarantees::SHARED).unwrap().bytes, 3);
    assert_eq!(fs::read(&log).unwrap(), b"old new");
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert_eq!(copy(&File::open(&log).unwrap(), &writer, Guarantees::default()).unwrap().bytes, 7);
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old new");
}

#[test]
fn a_folder_is_refused_and_said_to_be_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let (source, sink) = (File::open(&folder).unwrap(), tempfile::tempfile().unwrap());
    let refused = copy(&source, &sink, Guarantees::default()).unwrap_err();
    assert!(matches!(refused, Error::End { side: Side::Source, .. }), "{refused}");
    assert!(refused.to_string().starts_with("the source cannot be used: EISDIR"), "{refused}");
}

#[test]
fn a_sink_that_cannot_be_written_is_an_error_with_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::write(&from, "some bytes").unwrap();
    let only_read = File::open(&from).unwrap();
    let failed = copy(&File::open(&from).unwrap(), &only_read, Guarantees::default()).unwrap_err();
    let Error::Move { error, report } = &failed else { panic!("{failed}") };
    assert_eq!((error.moved, report.bytes), (0, 0), "{failed}");
    assert_eq!(std::io::Error::from(failed).raw_os_error(), None, "the whole error is inside");
}

#[test]
fn a_tree_that_is_not_complete_is_an_error_that_holds_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(to.join("taken")).unwrap();
    fs::create_dir(&from).unwrap();
    for name in ["taken", "free"] {
        fs::write(from.join(name), name).unwrap();
    }
    let failed = copy_tree(&from, &to).run().unwrap_err();
    assert!(failed.to_string().contains("taken"), "{failed}");
    let Error::Incomplete(report) = failed else { panic!("{failed}") };
    assert_eq!((report.files, report.error_count), (1, 1));
    assert_eq!(fs::read(to.join("free")).unwrap(), b"free");
}

#[test]
fn a_missing_source_is_named() {
    for failed in [
        copy_file("/no/such/file", "/tmp/never").unwrap_err(),
        copy_tree("/no/such/file", "/tmp/never").run().unwrap_err(),
    ] {
        assert!(failed.to_string().contains("/no/such/file"), "{failed}");
    }
}
