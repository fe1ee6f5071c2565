//! The object depends on no library and no symbol. Its only relocations add its own load address. No loop of the object was
//! compiled to a call of a function that the object exports.

use crate::support;

use std::process::Command;
use support::{Place, skip};

const EXPORTS: &[&str] = &[
    "__memcpy_chk",
    "__memmove_chk",
    "__mempcpy_chk",
    "__memset_chk",
    "memcpy",
    "memmove",
    "mempcpy",
    "memset",
];

/// Returns the output of a tool about the object. If there is no object or tool, counts a skip and
/// returns `None`.
fn said(test: &str, tool: &str, args: &[&str]) -> Option<String> {
    let place = Place::new(test)?;
    match Command::new(tool).args(args).arg(&place.object).env("LC_ALL", "C").output() {
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(String::from_utf8_lossy(&done.stdout).into_owned())
        }
        Err(error) => {
            skip(test, &format!("{tool} does not start: {error}"));
            None
        }
    }
}

#[test]
fn it_needs_no_library_and_no_symbol() {
    let test = "it_needs_no_library_and_no_symbol";
    let Some(dynamic) = said(test, "readelf", &["--dynamic", "--wide"]) else { return };
    assert!(dynamic.contains("(SONAME)"), "{dynamic}");
    assert!(!dynamic.contains("(NEEDED)") && !dynamic.contains("(TEXTREL)"), "{dynamic}");
    let Some(undefined) = said(test, "nm", &["--dynamic", "--undefined-only"]) else { return };
    assert_eq!(undefined.trim(), "");
    let Some(defined) = said(test, "nm", &["--dynamic", "--defined-only"]) else { return };
    let names: Vec<&str> = defined.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    assert_eq!(names, EXPORTS);
}

#[test]
fn its_relocations_are_its_own_load_address() {
    let test = "its_relocations_are_its_own_load_address";
    let Some(text) = said(test, "readelf", &["--relocs", "--wide"]) else { return };
    let entries: Vec<&str> = text.lines().filter(|line| line.contains(" R_")).collect();
    assert!(!entries.is_empty(), "{text}");
    let other: Vec<_> = entries.iter().filter(|line| !line.contains("_RELATIVE")).collect();
    assert!(other.is_empty(), "{other:?}");
}

#[test]
fn no_function_calls_what_the_object_stands_in_for() {
    let test = "no_function_calls_what_the_object_stands_in_for";
    let args = ["--disassemble", "--no-show-raw-insn"];
    let Some(text) = said(test, "objdump", &args) else { return };
    let mut function = "";
    for line in text.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            function = name;
            continue;
        }
        // A checked function of the object may jump to its unchecked one.
        let Some((_, target)) = line.rsplit_once('<') else { continue };
        let called = EXPORTS.iter().find(|name| target.strip_suffix('>') == Some(**name));
        let from_its_check = called.is_some_and(|name| function == format!("__{name}_chk"));
        assert!(called.is_none() || from_its_check, "{function}: {line}");
    }
    assert!(text.contains("<memcpy>:"), "no disassembly");
}
