//! Looks up users by name, and makes the process run as another user.

use crate::{Errno, io::last_errno};
use std::{
    ffi::{CString, c_char, c_int},
    mem::MaybeUninit,
    ptr,
};

/// A user of this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: CString,
    /// The user id.
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
}

// Space for the strings of one entry. Some groups have long lists of members.
const ROOM: usize = 64 << 10;

impl User {
    /// Looks up a name with `getpwnam_r(3)`; `None` if the user does not exist.
    pub fn find(name: &str) -> Result<Option<Self>, Errno> {
        // SAFETY: the C library's function with its own type of entry.
        let found = unsafe { look_up(name, libc::getpwnam_r) }?;
        Ok(found.map(|(name, entry)| Self { name, uid: entry.pw_uid, gid: entry.pw_gid }))
    }

    /// Returns the user's name.
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Makes the whole process run as this user, with the user's groups, permanently: `initgroups(3)`, `setgid(2)`,
    /// `setuid(2)`. EPERM if the process is not root. After an error, the process may already have the user's groups.
    pub fn enter(&self) -> Result<(), Errno> {
        // SAFETY: the name ends with a zero.
        answered(unsafe { libc::initgroups(self.name.as_ptr(), self.gid) })?;
        // SAFETY: takes only a number.
        answered(unsafe { libc::setgid(self.gid) })?;
        // SAFETY: as above.
        answered(unsafe { libc::setuid(self.uid) })
    }
}

/// Returns the number of a group with `getgrnam_r(3)`; `None` if the group does not exist.
pub fn group_id(name: &str) -> Result<Option<u32>, Errno> {
    // SAFETY: the C library's function with its own type of entry.
    Ok(unsafe { look_up(name, libc::getgrnam_r) }?.map(|(_, entry)| entry.gr_gid))
}

/// `getpwnam_r` or `getgrnam_r`: name, entry, space for its strings, its length, address of the entry found.
type LookUp<T> =
    unsafe extern "C" fn(*const c_char, *mut T, *mut c_char, usize, *mut *mut T) -> c_int;

/// Returns the name and its entry; `None` if the name does not exist.
///
/// # Safety
/// `call` follows getpwnam(3), and zeros are a valid `T`.
unsafe fn look_up<T>(name: &str, call: LookUp<T>) -> Result<Option<(CString, T)>, Errno> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    #[cfg(target_env = "gnu")]
    static_program::use_files_only();
    let mut entry = MaybeUninit::zeroed();
    let mut strings = vec![0; ROOM];
    let mut found = ptr::null_mut();
    let (at, room) = (entry.as_mut_ptr(), strings.as_mut_ptr());
    // SAFETY: the name ends with a zero; the call writes one entry, at most ROOM bytes of strings, and the address of
    // the entry.
    match unsafe { call(name.as_ptr(), at, room, ROOM, &raw mut found) } {
        0 if found.is_null() => Ok(None),
        // SAFETY: the name was found, so the entry was written.
        0 => Ok(Some((name, unsafe { entry.assume_init() }))),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}

#[cfg(target_env = "gnu")]
mod static_program {
    use std::{
        ffi::{c_char, c_int},
        sync::Once,
    };

    unsafe extern "C" {
        /// Sets the services of one database (glibc, nss.h), as a line of nsswitch.conf(5) does.
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    /// Makes the C library of a static program read `/etc/passwd` and `/etc/group` only. Other services are shared
    /// libraries. A library for another version of the C library can crash the program.
    pub fn use_files_only() {
        static ONCE: Once = Once::new();
        // SAFETY: takes only a number. The kernel passes the address of the dynamic linker, and 0 to a static program.
        if unsafe { libc::getauxval(libc::AT_BASE) } != 0 {
            return;
        }
        ONCE.call_once(|| {
            for database in [c"passwd", c"group", c"initgroups"] {
                // SAFETY: both texts end with a zero, and the C library copies them.
                let _ = unsafe { __nss_configure_lookup(database.as_ptr(), c"files".as_ptr()) };
            }
        });
    }
}

fn answered(answer: c_int) -> Result<(), Errno> {
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_users_are_found_and_unknown_ones_are_not() {
        assert_eq!(User::find("root").unwrap().map(|user| user.uid), Some(0));
        assert_eq!(User::find("no such user, ever").unwrap(), None);
        assert_eq!(User::find("root\0").unwrap(), None);
        assert_eq!(group_id("root").unwrap(), Some(0));
        assert_eq!(group_id("no such group, ever").unwrap(), None);
    }
}
