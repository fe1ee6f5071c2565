//! A standard input or output that is closed is an error, not an empty one.

use std::fs;

use crate::support::{Scratch, names, shell};

#[test]
fn a_closed_standard_stream_that_bytes_should_pass_is_an_error() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    for (line, what) in [
        ("$T pipe <d >&-", "standard output is closed"),
        ("$T pipe --tee t <d >&-", "standard output is closed"),
        ("$T pipe <&-", "standard input is closed"),
        ("$T copy d - >&-", "standard output is closed"),
        ("$T copy - x <&-", "standard input is closed"),
        ("$T copy - - <&- >&-", "is closed"),
        ("$T send --to ./s - <&-", "standard input is closed"),
        ("$T receive --from ./s - >&-", "standard output is closed"),
        ("$T list >&-", "standard output is closed"),
        ("$T plan - d <&-", "standard input is closed"),
        ("$T copy d /dev/stdout >&-", "ENXIO"),
        ("$T copy /dev/stdin x <&-", "ENXIO"),
        ("$T pipe --tee /dev/stdout <d >&-", "closed"),
    ] {
        shell(scratch.path(), line).expect(1).expect_said(what);
        assert_eq!(names(scratch.path()), ["d"], "{line}");
    }
}

#[test]
fn a_copy_needs_no_standard_stream_and_none_of_its_files_becomes_one() {
    let scratch = Scratch::new();
    fs::write(scratch.join("d"), "data").unwrap();
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/f"), "f").unwrap();
    // A file opened as 1 or 2 would get the summary or a complaint into it.
    for streams in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let copy = format!("rm -rf x y; $T copy -v d x {streams} && $T copy -rv tree y {streams}");
        shell(scratch.path(), &copy).expect(0);
        assert_eq!(fs::read(scratch.join("x")).unwrap(), b"data", "{streams}");
        assert_eq!(fs::read(scratch.join("y/f")).unwrap(), b"f", "{streams}");
        shell(scratch.path(), &format!("$T copy -v gone x {streams}")).expect(1);
        assert_eq!(fs::read(scratch.join("x")).unwrap(), b"data", "{streams}");
    }
    // What was asked for is lost without a standard output; without a standard error nothing is.
    shell(scratch.path(), "$T copy --json d x >&-").expect(1).expect_said("is closed");
    let ran = shell(scratch.path(), "$T copy d - 2>&-").expect(0);
    assert_eq!(ran.stdout, b"data");
}
