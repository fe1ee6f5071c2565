//! Conversions of names and paths between the kernel, the standard library and manifests.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::Path,
};
use thalweg_core::shown;

use crate::Error;

/// The file in the destination of a sync that records its source. It is neither copied nor deleted.
pub(crate) const STATE_FILE: &CStr = c".thalweg-sync";

/// Converts a name to the type of the standard library.
pub(crate) fn os(name: &CStr) -> &OsStr {
    os_bytes(name.to_bytes())
}

/// Converts the bytes of a name to the type of the standard library.
pub(crate) fn os_bytes(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// Splits a path into its directory and its last name. If the last name is `..` or missing (as in `/`), returns the
/// whole path as the directory, and `.` as the name.
pub(crate) fn cut(path: &Path) -> (&Path, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    match &bytes[start..end] {
        b"" | b"." | b".." => (path, OsStr::new(".")),
        name => (Path::new(OsStr::from_bytes(&bytes[..start])), OsStr::from_bytes(name)),
    }
}

/// Converts a name to the form that system calls take.
pub(crate) fn c_string(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.as_bytes())
        .map_err(|_| Error::Usage(format!("'{}': the name contains a NUL", shown(text))))
}

/// Normalizes a path: removes `.` and repeated slashes, so `./a//b` becomes `a/b`.
pub(crate) fn plain(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<&[u8]> = names.collect();
    let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    [root, &names.join(&b'/')].concat()
}
