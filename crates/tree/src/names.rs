//! Names and paths as the kernel, the standard library and the lists of files have them.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::Path,
};
use thalweg_core::shown;

use crate::Error;

/// A name as the standard library sees it.
pub(crate) fn os(name: &CStr) -> &OsStr {
    os_bytes(name.to_bytes())
}

/// Bytes of a name as the standard library sees them.
pub(crate) fn os_bytes(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// A path cut into its directory and its last name. Where the last name says nothing (`..`, `/`)
/// the path itself is the directory, and the name is `.`.
pub(crate) fn cut(path: &Path) -> (&Path, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    match &bytes[start..end] {
        b"" | b"." | b".." => (path, OsStr::new(".")),
        name => (Path::new(OsStr::from_bytes(&bytes[..start])), OsStr::from_bytes(name)),
    }
}

/// A name for a system call.
pub(crate) fn c_string(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.as_bytes())
        .map_err(|_| Error::Usage(format!("'{}': a name with a NUL in it", shown(text))))
}

/// A path without what leads nowhere: `./a//b` is `a/b`.
pub(crate) fn plain(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<&[u8]> = names.collect();
    let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    [root, &names.join(&b'/')].concat()
}
