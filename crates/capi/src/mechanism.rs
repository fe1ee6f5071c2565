//! The list of mechanisms, and their probes.

use std::ffi::c_char;
use thalweg_core::{MECHANISMS, mechanisms::by_name, probe, scratch::ScratchSite};

use crate::error::CallFailure;
use crate::{guard::exported, handle, json, text};

/// Returns the number of mechanisms. Valid indices are 0 up to this number minus 1.
#[unsafe(no_mangle)]
pub extern "C" fn tw_mechanism_count() -> usize {
    MECHANISMS.len()
}

/// Returns the name of the mechanism at `index`, or null if `index` is out of range. The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_mechanism_name(index: usize) -> *const c_char {
    text::text_or_null(MECHANISMS.get(index).map(|mechanism| mechanism.info().name))
}

/// Returns the summary of the mechanism at `index`, or null if `index` is out of range. The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_mechanism_summary(index: usize) -> *const c_char {
    text::text_or_null(MECHANISMS.get(index).map(|mechanism| mechanism.info().summary))
}

exported! {
    /// Returns all facts about all mechanisms as JSON.
    ///
    /// # Safety
    /// `json` must be writable; `error` must be null or writable.
    fn tw_mechanisms_json(json: *mut *mut c_char) {
        let json = handle::place(json, "result")?;
        *json = text::handed_out(&json::mechanisms());
        Ok(())
    }

    /// Tests a mechanism on all its endpoint pairs.
    ///
    /// # Safety
    /// `mechanism` must be a string, `folder` null or a string, `json` writable, and `error` null or
    /// writable.
    fn tw_probe_json(mechanism: *const c_char, folder: *const c_char, json: *mut *mut c_char) {
        let json = handle::place(json, "result")?;
        let name = text::optional(mechanism);
        let name = name.ok_or(CallFailure::usage("mechanism: the pointer is NULL"))?;
        let named = (!folder.is_null()).then(|| text::path(folder, "folder"));
        let folder = named.transpose()?.unwrap_or_else(std::env::temp_dir);
        let found = by_name(&name).ok_or_else(|| no_such(&name))?;
        let answers = probe::all(found, &ScratchSite::at(folder));
        *json = text::handed_out(&json::probes(&answers));
        Ok(())
    }
}

/// Builds the error for an unknown name, with the list of known ones.
pub(crate) fn no_such(name: &str) -> CallFailure {
    let names: Vec<&str> = MECHANISMS.iter().map(|mechanism| mechanism.info().name).collect();
    CallFailure::usage(format!("unknown mechanism {name:?}; known: {}", names.join(", ")))
}
