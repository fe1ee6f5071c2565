//! Parses a line of a tree's list. Accepts only names below the fetched directory.

use std::ffi::{CStr, CString};

use percent_encoding::percent_decode_str;
use thalweg_core::atomic_file::name::is_reserved;

use crate::manifest::{ManifestLine, Meta};

/// A directory, file or symbolic link of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Path below the fetched directory: names separated by single slashes; empty for that directory itself.
    pub path: Vec<u8>,
    pub kind: ListedKind,
    pub meta: Meta,
    /// `true` for a directory that the server may not read: its entries are not listed.
    pub is_unread: bool,
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    File {
        size: u64,
        etag: String,
    },
    Directory,
    /// A symbolic link and its target.
    Link(CString),
}

/// The totals in the last line of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListTotals {
    pub entries: u64,
    pub bytes: u64,
    pub left_out: u64,
}

/// A line that is valid in isolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedLine {
    Entry(ListedEntry),
    End(ListTotals),
}

/// Linux file systems do not allow longer names.
const LONGEST_NAME: usize = 255;

/// Parses a line; the error is the reason why it is invalid.
pub fn parse(line: &[u8]) -> Result<ParsedLine, String> {
    let line: ManifestLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let mut is_unread = false;
    let (path, kind, meta) = match line {
        ManifestLine::End { entries, bytes, left_out } => {
            return Ok(ParsedLine::End(ListTotals { entries, bytes, left_out }));
        }
        ManifestLine::File { path, size, meta, etag } => {
            (path, ListedKind::File { size, etag }, meta)
        }
        ManifestLine::Directory { path, meta, unread } => {
            is_unread = unread;
            (path, ListedKind::Directory, meta)
        }
        ManifestLine::Link { path, target, meta } => {
            let target =
                CString::new(decoded(&target)).map_err(|_| "the link target contains NUL")?;
            (path, ListedKind::Link(target), meta)
        }
    };
    let path = decoded(&path);
    if !(path.is_empty() && kind == ListedKind::Directory) {
        path.split(|byte| *byte == b'/').try_for_each(check_name)?;
    }
    if meta.mode > 0o7777 || meta.nanos >= 1_000_000_000 {
        return Err("invalid mode or time".to_owned());
    }
    Ok(ParsedLine::Entry(ListedEntry { path, kind, meta, is_unread }))
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

fn check_name(name: &[u8]) -> Result<(), String> {
    let wrong = match name {
        b"" => "the path contains an empty name",
        b"." | b".." => "the path contains '.' or '..'",
        name if name.contains(&0) => "the name contains NUL",
        name if name.len() > LONGEST_NAME => "the name is longer than 255 bytes",
        _ => return Ok(()),
    };
    Err(wrong.to_owned())
}

impl ListedEntry {
    /// Returns the path of the directory that contains the entry.
    pub fn directory(&self) -> &[u8] {
        let cut = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        &self.path[..cut]
    }

    /// Returns the last component of the path.
    pub fn name(&self) -> CString {
        CString::new(self.name_bytes()).expect("a NUL was refused")
    }

    /// Returns the last component of the path as bytes, for comparisons.
    pub fn name_bytes(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Returns `true` if a component of the path is reserved for partial files: the next run would take it for a
    /// leftover.
    pub fn is_reserved(&self) -> bool {
        self.path.split(|byte| *byte == b'/').any(|name| {
            name.starts_with(b".") && CString::new(name).is_ok_and(|name| is_reserved(&name))
        })
    }
}

/// Returns `true` if a symbolic link in `directory` stays below the top, whatever other links exist. `..`
/// is allowed only at the start of the target, where it climbs through real directories. After a name, which may
/// itself be a link, the depth that `..` reaches is unknown.
pub fn stays_inside(directory: &[u8], target: &CStr) -> bool {
    let mut depth = if directory.is_empty() { 0 } else { directory.split(|b| *b == b'/').count() };
    let target = target.to_bytes();
    let mut is_in_front = true;
    !target.is_empty()
        && !target.starts_with(b"/")
        && target.split(|byte| *byte == b'/').all(|name| match name {
            b"" | b"." => true,
            b".." if is_in_front && depth > 0 => {
                depth -= 1;
                true
            }
            b".." => false,
            _ => {
                is_in_front = false;
                true
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#""mode":420,"uid":0,"gid":0,"mtime":1,"nanos":2"#;

    fn file(path: &str) -> Result<ParsedLine, String> {
        let line = format!(r#"{{"type":"file","path":"{path}","size":3,{META},"etag":"\"a\""}}"#);
        parse(line.as_bytes())
    }

    #[test]
    fn a_path_is_names_below_the_folder_and_nothing_else() {
        let Ok(ParsedLine::Entry(entry)) = file("a/%2ehidden/%ff%0A") else {
            panic!("{:?}", file("a"))
        };
        assert_eq!((entry.directory(), entry.name_bytes()), (&b"a/.hidden"[..], &b"\xff\n"[..]));
        assert!(!entry.is_reserved());
        let long = "x".repeat(256);
        for wrong in [
            "",
            "/",
            "/etc/passwd",
            "a/",
            "a//b",
            "..",
            "a/../b",
            "%2e%2e/b",
            "a/%2e/b",
            "a%2f%2e%2e",
            "a%00b",
            &long,
            "a/%2F",
        ] {
            assert!(file(wrong).is_err(), "{wrong}");
        }
        for reserved in [".a.thalweg-part/b", "a/.b.thalweg-journal"] {
            let Ok(ParsedLine::Entry(entry)) = file(reserved) else { panic!("{reserved}") };
            assert!(entry.is_reserved(), "{reserved}");
        }
    }

    #[test]
    fn numbers_that_no_file_has_and_words_of_no_list_are_refused() {
        for wrong in [
            r#"{"type":"folder","path":"a","mode":4096,"uid":0,"gid":0,"mtime":1,"nanos":2}"#,
            r#"{"type":"folder","path":"a","mode":1,"uid":0,"gid":0,"mtime":1,"nanos":1000000000}"#,
            r#"{"type":"folder","path":"a","mode":-1,"uid":0,"gid":0,"mtime":1,"nanos":0}"#,
            r#"{"type":"fifo","path":"a","mode":1,"uid":0,"gid":0,"mtime":1,"nanos":0}"#,
            r#"{"type":"link","path":"a","target":"%00","mode":1,"uid":0,"gid":0,"mtime":1,"nanos":0}"#,
            "{}",
            "",
            "<html>",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let end = parse(br#"{"type":"end","entries":1,"bytes":2,"left_out":3}"#).unwrap();
        assert_eq!(end, ParsedLine::End(ListTotals { entries: 1, bytes: 2, left_out: 3 }));
    }

    #[test]
    fn a_link_stays_inside_only_if_nothing_on_its_way_can_lead_out() {
        let stays = |directory: &str, target: &str| {
            stays_inside(directory.as_bytes(), &CString::new(target).unwrap())
        };
        for (directory, target) in [("", "a"), ("", "./a//b/"), ("a/b", "../../c"), ("a", "..")] {
            assert!(stays(directory, target), "{directory} {target}");
        }
        for (directory, target) in [
            ("", ".."),
            ("", "/etc"),
            ("a", "../.."),
            ("", "a/.."),
            ("a/b", "../x/../.."),
            ("", ""),
        ] {
            assert!(!stays(directory, target), "{directory} {target}");
        }
    }
}
