//! How much memory a list takes. A program of its own: what other tests hold would be counted too.

use std::{fmt::Write as _, fs, io::Write as _};
use thalweg_testing::peak_resident;

use crate::trees::{get, liar::LyingServer, options};

#[test]
fn a_long_list_costs_no_memory_that_grows_with_it() {
    const COUNT: usize = 300_000;
    let _alone = thalweg_testing::alone();
    let meta = r#""mode":493,"uid":0,"gid":0,"mtime":1,"nanos":2"#;
    let mut text = format!("{{\"type\":\"folder\",\"path\":\"\",{meta}}}\n");
    for n in 0..COUNT {
        writeln!(text, "{{\"type\":\"folder\",\"path\":\"{n:08}\",{meta}}}").unwrap();
    }
    // The last line lies, so that all is read and nothing is made.
    text += "{\"type\":\"end\",\"entries\":1,\"bytes\":0,\"left_out\":0}\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/jsonl\r\nContent-Length: ";
    let answer = format!("{head}{}\r\n\r\n{text}", text.len()).into_bytes();
    drop(text);
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
