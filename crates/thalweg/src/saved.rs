//! The profile of this machine, which is read once.

use std::sync::{Arc, OnceLock};
use thalweg_core::Profile;

/// Returns `true` if mechanisms are chosen by measurements of this machine: `thalweg tune` was run, and nothing that its profile
/// depends on (kernel, CPU, limits ...) has changed since.
///
/// The first call that needs the profile reads it. `THALWEG_PROFILE` names another file. A stale or invalid profile is not used.
///
/// ```
/// if !thalweg::is_measured() {
///     eprintln!("mechanisms are chosen in a fixed order; `thalweg tune --quick` measures this machine");
/// }
/// ```
pub fn is_measured() -> bool {
    profile().is_some()
}

pub(crate) fn profile() -> Option<&'static Arc<Profile>> {
    static SAVED: OnceLock<Option<Arc<Profile>>> = OnceLock::new();
    let read = || {
        let profile = Profile::load(&Profile::default_path()?).ok().flatten()?;
        // Measurements of memory may be valid even if other measurements are stale, for example in a pinned process.
        let stale = profile.stale();
        profile.install_kernels(&stale);
        stale.is_empty().then(|| Arc::new(profile))
    };
    SAVED.get_or_init(read).as_ref()
}
