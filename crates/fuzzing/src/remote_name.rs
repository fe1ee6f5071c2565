//! Names of files on other machines. A host must not look like an option of ssh or contain characters that a shell
//! interprets. A path must survive encoding and decoding unchanged.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use thalweg_serve::remote::{RemoteName, decode, encode};

/// Runs one input.
pub fn run(name: &[u8]) {
    let word = encode(OsStr::from_bytes(name));
    let is_quiet = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/%".contains(&byte);
    assert!(word.bytes().all(is_quiet) && !word.starts_with('-'), "{word}");
    assert_eq!(decode(OsStr::new(&word), None).as_os_str().as_bytes(), name);
    // The other machine decodes whatever it receives, so any bytes must be accepted.
    let _ = decode(OsStr::from_bytes(name), Some(Path::new("/home")));
    let Ok(Some(parsed)) = RemoteName::parse(&OsString::from_vec(name.to_vec())) else { return };
    let RemoteName { host, path } = parsed;
    assert!(!host.starts_with('-') && !host.contains("@-") && !host.is_empty(), "{host}");
    assert!(host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%+,=@".contains(&byte)));
    assert!(name.ends_with(path.as_bytes()) && !path.as_bytes().contains(&0));
}
