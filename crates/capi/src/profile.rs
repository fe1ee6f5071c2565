//! `tw_profile`: the measured profile of this machine.

use std::ffi::c_char;
use std::sync::Arc;
use thalweg_core::Profile;

use crate::error::{Failure, Status, TwError};
use crate::{guard, text};

/// `tw_profile`, opaque to C.
#[derive(Debug)]
pub struct TwProfile(pub(crate) Arc<Profile>);

/// Loads a profile; null where there is none.
///
/// # Safety
/// `path` is null or a string, `profile` may be written, `error` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_profile_load(
    path: *const c_char,
    profile: *mut *mut TwProfile,
    error: *mut TwError,
) -> Status {
    let body = || {
        if profile.is_null() {
            return Err(Failure::usage("there is no place for the profile: the pointer is NULL"));
        }
        // SAFETY: the caller's promise.
        let named = unsafe { path.as_ref() }.map(|path| unsafe { text::path(path, "path") });
        let found = load(named.transpose()?)?;
        let handle = found.map_or(std::ptr::null_mut(), |found| {
            Box::into_raw(Box::new(TwProfile(Arc::new(found))))
        });
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { profile.write(handle) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard::run(error, body) }
}

fn load(named: Option<std::path::PathBuf>) -> Result<Option<Profile>, Failure> {
    let Some(path) = named.or_else(Profile::default_path) else { return Ok(None) };
    let loaded = Profile::load(&path).map_err(|e| Failure::usage(e.to_string()))?;
    let Some(profile) = loaded else { return Ok(None) };
    match profile.stale().first() {
        None => Ok(Some(profile)),
        Some(stale) => {
            let message = format!("{}: it does not hold here: {stale}", path.display());
            Err(Failure::new(Status::Unsupported, message))
        }
    }
}

/// Frees a profile; plans and transfers that were begun with it keep what they need.
///
/// # Safety
/// `profile` is null, or came out of `tw_profile_load` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_profile_free(profile: *mut TwProfile) {
    if !profile.is_null() {
        // SAFETY: it came from `Box::into_raw` in `tw_profile_load`.
        drop(unsafe { Box::from_raw(profile) });
    }
}
