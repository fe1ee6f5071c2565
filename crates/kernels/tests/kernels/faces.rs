//! The safe functions copy and fill correctly, and panic if lengths or ranges do not fit.

use std::panic::catch_unwind;

use thalweg_kernels::{by_name, copy, copy_crc32c, copy_within, copy_xxh3, crc32c, fill, xxh3};

#[test]
fn the_functions_for_callers_that_do_not_choose_copy_move_fill_and_sum() {
    let mut bytes = *b"thalweg";
    copy_within(&mut bytes, 3.., 0);
    assert_eq!(&bytes, b"lwegweg");
    copy_within(&mut bytes, ..=2, 4);
    assert_eq!(&bytes, b"lweglwe");
    fill(&mut bytes[1..3], b'-');
    assert_eq!(&bytes, b"l--glwe");
    let mut sink = [0; 7];
    copy(&mut sink, &bytes);
    assert_eq!(sink, bytes);

    let mut sink = [0; 9];
    assert_eq!(copy_crc32c(&mut sink, b"123456789", 0), 0xe306_9283);
    assert_eq!(&sink, b"123456789");
    assert_eq!(crc32c(&sink[5..], crc32c(&sink[..5], 0)), 0xe306_9283);

    let mut sink = [0; 9];
    assert_eq!(copy_xxh3(&mut sink, b"123456789"), xxh3(b"123456789"));
    assert_eq!(&sink, b"123456789");
}

#[test]
fn lengths_that_differ_and_parts_outside_are_refused() {
    assert!(catch_unwind(|| copy(&mut [0; 3], &[0; 4])).is_err());
    assert!(catch_unwind(|| copy_crc32c(&mut [0; 4], &[0; 3], 0)).is_err());
    assert!(catch_unwind(|| copy_xxh3(&mut [0; 4], &[0; 3])).is_err());
    assert!(catch_unwind(|| copy_within(&mut [0; 4], 1..5, 0)).is_err());
    assert!(catch_unwind(|| copy_within(&mut [0; 4], 0..2, 3)).is_err());
    assert!(catch_unwind(|| copy_within(&mut [0; 4], 0..=usize::MAX, 0)).is_err());
    let ready = by_name("simple").and_then(thalweg_kernels::Kernel::ready).unwrap();
    assert!(catch_unwind(|| ready.copy(&mut [0; 3], &[0; 4])).is_err());
    assert!(by_name("no such row").is_none());
}
