//! Keeps what is about to be replaced under another name.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, linkat, openat, statat};
use std::{
    ffi::{CStr, CString},
    os::unix::ffi::OsStrExt,
};
use thalweg_sys::{Errno, io};

use crate::{
    Backup, CopyOptions, Refusal,
    error::{Attempt, Failure, at_sink},
    identity::Id,
    naming,
    publish::{Spot, unlink},
    stage::listing_buffer,
};

/// Gives what lies at `spot` a second name, its backup's, so that a rename over the first one loses
/// nothing and leaves no moment without a file. Returns that name.
pub(crate) fn set_aside(
    options: &CopyOptions,
    spot: Spot<'_>,
    source: &Stat,
) -> Attempt<Option<CString>> {
    let Some(name) = backup_name(options, spot)? else { return Ok(None) };
    let old = statat(spot.dir, &*name, AtFlags::SYMLINK_NOFOLLOW);
    if old.is_ok_and(|old| Id::of(&old) == Id::of(source)) {
        return Err(Failure::Refused(Refusal::BackupOverSource));
    }
    // By way of a third name, as linkat does not replace.
    let temporary = naming::unique(spot.name);
    match linkat(spot.dir, spot.name, spot.dir, &*temporary, AtFlags::empty()) {
        Ok(()) => {
            let moved = io::rename(spot.dir, &*temporary, spot.dir, &*name, false);
            // Where both were one file already, rename does nothing and leaves both.
            let _ = unlink(spot.dir, &temporary);
            moved.map_err(at_sink("renameat2"))?;
        }
        // No hard links here: the short moment has to be.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NAMETOOLONG) => {
            io::rename(spot.dir, spot.name, spot.dir, &*name, false)
                .map_err(at_sink("renameat2"))?;
        }
        Err(errno) => return Err(Failure::Sink("linkat", errno, 0)),
    }
    Ok(Some(name))
}

fn backup_name(options: &CopyOptions, spot: Spot<'_>) -> Attempt<Option<CString>> {
    let name = spot.name.to_bytes();
    let simple = || {
        let suffix = options.suffix.as_bytes();
        [name, if suffix.is_empty() { b"~" } else { suffix }].concat()
    };
    let bytes = match options.backup {
        Backup::None => return Ok(None),
        Backup::Simple => simple(),
        Backup::Numbered => numbered(name, highest(spot)? + 1),
        Backup::Existing => match highest(spot)? {
            0 => simple(),
            last => numbered(name, last + 1),
        },
    };
    CString::new(bytes).map(Some).map_err(|_| Failure::Sink("rename", Errno::INVAL, 0))
}

fn numbered(name: &[u8], number: u64) -> Vec<u8> {
    [name, format!(".~{number}~").as_bytes()].concat()
}

/// The highest number of a numbered backup; 0 if there is none.
fn highest(spot: Spot<'_>) -> Attempt<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(spot.dir, c".", flags, Mode::empty()).map_err(at_sink("openat"))?;
    let mut buffer = listing_buffer();
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut highest = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(at_sink("getdents64"))?;
        if entry.file_type() != FileType::Directory {
            highest = highest.max(number_of(spot.name, entry.file_name()).unwrap_or(0));
        }
    }
    Ok(highest)
}

fn number_of(name: &CStr, entry: &CStr) -> Option<u64> {
    let rest = entry.to_bytes().strip_prefix(name.to_bytes())?;
    let digits = rest.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_backups_of_this_name_only() {
        assert_eq!(number_of(c"a", c"a.~12~"), Some(12));
        for other in [c"a~", c"b.~1~", c"a.~~", c"a.~1", c"a.~+1~", c"a.~99999999999999999999999~"]
        {
            assert_eq!(number_of(c"a", other), None, "{other:?}");
        }
        assert_eq!(numbered(b"a", 3), b"a.~3~");
    }
}
