//! Resolves command names, and fills patterns in arguments.

use rustix::fs::{Access, access};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Returns the file that execvp(3) would run for this name. The error explains why none was found.
pub fn find(name: &OsStr) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("the command is empty".to_owned());
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Err(error) => Err(error.to_string()),
            Ok(meta) if !meta.is_file() => Err("not a file".to_owned()),
            Ok(_) if !is_executable(&path) => Err("not executable".to_owned()),
            Ok(_) => Ok(path),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(name));
    candidates
        .find(|path| path.is_file() && is_executable(path))
        .ok_or_else(|| "not found in PATH".to_owned())
}

fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

/// Returns `word` with every `pattern` replaced by `value`. Works on bytes, because paths are not always UTF-8.
pub fn fill(word: &OsStr, pattern: &str, value: &OsStr) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(pattern.len()).position(|part| part == pattern.as_bytes()) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(value.as_bytes());
        rest = &rest[at + pattern.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn patterns_are_filled_in_wherever_they_stand() {
        let fill = |word: &str| fill(word.as_ref(), "{source}", "/a b".as_ref());
        assert_eq!(fill("if={source},{source}"), "if=/a b,/a b");
        assert_eq!(fill("-n"), "-n");
    }

    #[test]
    fn a_command_is_found_as_a_shell_would_find_it() {
        let path = find("sh".as_ref()).unwrap();
        assert!(path.is_absolute());
        assert_eq!(find(path.as_os_str()), Ok(path));
        assert!(find("no-such-program".as_ref()).unwrap_err().contains("in PATH"));
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "no program").unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(find(text.as_os_str()).unwrap_err(), "not executable");
        assert_eq!(find(folder.path().as_os_str()).unwrap_err(), "not a file");
        assert!(find("".as_ref()).unwrap_err().contains("empty"));
    }
}
