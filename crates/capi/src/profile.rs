//! `tw_profile`: the measured profile of this machine.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};
use thalweg_core::{Profile, profile::ProfileError, profile::Stale};
use thalweg_sys::Errno;

use crate::error::{CallFailure, TwStatus};
use crate::{guard::exported, handle, kernel, text};

/// `tw_profile`, opaque to C.
#[derive(Debug)]
pub struct TwProfile {
    pub(crate) profile: Arc<Profile>,
}

exported! {
    /// Loads a profile. Stores null if the file does not exist.
    ///
    /// # Safety
    /// `path` must be null or a string that ends with NUL, `profile` writable, and `error` null or
    /// writable.
    fn tw_profile_load(path: *const c_char, profile: *mut *mut TwProfile) {
        let profile = handle::place(profile, "profile")?;
        let named = (!path.is_null()).then(|| text::path(path, "path"));
        if let Some(found) = load(named.transpose()?)? {
            *profile = Box::into_raw(Box::new(TwProfile { profile: Arc::new(found) }));
        }
        Ok(())
    }
}

fn load(named: Option<std::path::PathBuf>) -> Result<Option<Profile>, CallFailure> {
    let Some(path) = named.or_else(Profile::default_path) else { return Ok(None) };
    let loaded = Profile::load(&path).map_err(|error| unusable(&error))?;
    let Some(profile) = loaded else { return Ok(None) };
    let stale = profile.stale();
    install(&profile, &stale);
    profile.valid_part(&stale).map(Some).ok_or_else(|| {
        let differences: Vec<String> = stale.iter().map(ToString::to_string).collect();
        let message = format!(
            "{}: the profile is stale ({}); run `thalweg tune` again",
            path.display(),
            differences.join("; ")
        );
        CallFailure::new(TwStatus::Unsupported, message)
    })
}

/// Installs the kernels of the profile, unless an earlier profile did.
fn install(profile: &Profile, stale: &[Stale]) {
    static INSTALLING: Mutex<()> = Mutex::new(());
    // Without the lock, a second call could read the functions before the first one installs its kernels, and write
    // them to the variables of C programs after it.
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    profile.install_kernels(stale);
    kernel::follow_installed();
}

fn unusable(error: &ProfileError) -> CallFailure {
    match error {
        ProfileError::Io { source, .. } => {
            let os_error = Errno::from_io_error(source).map_or(0, Errno::raw_os_error);
            CallFailure { os_error, ..CallFailure::new(TwStatus::System, error.to_string()) }
        }
        ProfileError::Invalid { .. } => CallFailure::usage(error.to_string()),
    }
}

/// Frees a profile. Plans, transfers and senders that use it keep their copies of it.
///
/// # Safety
/// `profile` must be null, or come from `tw_profile_load` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_profile_free(profile: *mut TwProfile) {
    if !profile.is_null() {
        // SAFETY: It came from `Box::into_raw` in `tw_profile_load`.
        drop(unsafe { Box::from_raw(profile) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_kernels::{Bands, tuned::Unfit};

    #[test]
    fn a_profile_that_is_loaded_decides_by_which_kernels_memory_is_copied() {
        let cell = |kernel: &str, ratio: f64| {
            let ratio = serde_json::json!({ "ratio": ratio, "lo": ratio, "hi": ratio });
            serde_json::json!({
                "source": "memory", "sink": "memory", "mechanism": kernel, "size": 64,
                "wall": ratio, "cpu": ratio, "noise": 0.01, "ns_per_byte": 1.0,
                "sessions": 3, "rounds": 9, "at": "2026-11-21T00:00:00Z",
            })
        };
        let cells = serde_json::json!([cell("libc", 1.0), cell("simple", 0.5)]);
        let profile = Profile { cells: serde_json::from_value(cells).unwrap(), ..Profile::new() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        profile.save(&path).unwrap();
        assert!(load(Some(path.clone())).is_ok_and(|found| found.is_some()));
        let again = Bands::of(&[]).and_then(Bands::install);
        assert_eq!(again, Err(Unfit::Installed), "the profile's bands are there");
        let mut sink = [0_u8; 100];
        // SAFETY: Two buffers of 100 bytes.
        unsafe { kernel::tw_memcpy(sink.as_mut_ptr().cast(), [7_u8; 100].as_ptr().cast(), 100) };
        assert_eq!(sink, [7; 100]);
        assert_eq!(kernel::first_band(), (64, thalweg_kernels::tuned::first_copies() as usize));
        let now = kernel::tw_memcpy_now.load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(now.addr(), thalweg_kernels::tuned::copies() as usize);
        assert_ne!(
            now.addr(),
            libc::memcpy as *const () as usize,
            "bands that are not libc's alone"
        );
        // Only the measurements of memory copies are valid for a process on other cores.
        let load_with = |key: &str| {
            let mut changed = profile.clone();
            changed.machine.set(key, "of another process");
            changed.save(&path).unwrap();
            load(Some(path.clone()))
        };
        let valid = load_with("affinity").ok().flatten().map(|found| found.cells);
        assert_eq!(valid, Some(profile.cells.clone()));
        let refused = load_with("kernel").err();
        assert_eq!(refused.map(|failure| failure.status), Some(TwStatus::Unsupported));
    }
}
