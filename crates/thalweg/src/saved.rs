//! The profile of this machine, read once.

use std::sync::{Arc, OnceLock};
use thalweg_core::Profile;

/// Whether ways are chosen by measurements of this machine: `thalweg tune` has been run, and nothing
/// of what its profile depends on (kernel, processor, limits ...) has changed since.
///
/// The profile is read by the first call of this crate that needs it; `THALWEG_PROFILE` names another
/// file. One that is stale or broken is not used.
///
/// ```
/// if !thalweg::is_measured() {
///     eprintln!("ways are chosen by a fixed order; `thalweg tune --quick` measures this machine");
/// }
/// ```
pub fn is_measured() -> bool {
    profile().is_some()
}

pub(crate) fn profile() -> Option<&'static Arc<Profile>> {
    static SAVED: OnceLock<Option<Arc<Profile>>> = OnceLock::new();
    let read = || {
        let profile = Profile::load(&Profile::default_path()?).ok().flatten()?;
        // Of memory it may hold where it does not hold for the rest: in a process that is pinned.
        let stale = profile.stale();
        profile.install_kernels(&stale);
        stale.is_empty().then(|| Arc::new(profile))
    };
    SAVED.get_or_init(read).as_ref()
}
