//! Users by name, and becoming one.

use crate::{Errno, io::last_errno};
use std::{ffi::CString, mem::MaybeUninit, ptr};

/// A user of this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: CString,
    /// Its number.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

// Room for the strings of one entry; some have long lists of names.
const ROOM: usize = 64 << 10;

impl User {
    /// Looks for a name, by `getpwnam_r(3)`; `None` if there is no such user.
    pub fn find(name: &str) -> Result<Option<Self>, Errno> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        let mut entry = MaybeUninit::<libc::passwd>::zeroed();
        let mut strings = vec![0; ROOM];
        let mut found = ptr::null_mut();
        // SAFETY: the name ends with a zero; the call writes one entry, at most ROOM bytes of strings, and where
        // the entry is.
        let errno = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                strings.as_mut_ptr(),
                ROOM,
                &raw mut found,
            )
        };
        if errno != 0 {
            return Err(Errno::from_raw_os_error(errno));
        }
        if found.is_null() {
            return Ok(None);
        }
        // SAFETY: it was found, so the entry was written; zeros are an entry too.
        let entry = unsafe { entry.assume_init() };
        Ok(Some(Self { name, uid: entry.pw_uid, gid: entry.pw_gid }))
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Makes the whole process this user, with its groups and for good: `initgroups(3)`, `setgid(2)`, `setuid(2)`.
    /// EPERM for who is not root. After an error the process may have the groups already.
    pub fn enter(&self) -> Result<(), Errno> {
        // SAFETY: the name ends with a zero.
        answered(unsafe { libc::initgroups(self.name.as_ptr(), self.gid) })?;
        // SAFETY: takes a number alone.
        answered(unsafe { libc::setgid(self.gid) })?;
        // SAFETY: as above.
        answered(unsafe { libc::setuid(self.uid) })
    }
}

fn answered(answer: libc::c_int) -> Result<(), Errno> {
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_there_is_found_and_nobody_else() {
        assert_eq!(User::find("root").unwrap().map(|user| user.uid), Some(0));
        assert_eq!(User::find("no such user, ever").unwrap(), None);
        assert_eq!(User::find("root\0").unwrap(), None);
    }
}
