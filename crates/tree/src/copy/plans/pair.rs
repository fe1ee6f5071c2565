//! Facts about copying from one file system to another, which the copy queries once. A mechanism that the file systems
//! do not support is not tried a second time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use thalweg_core::{Blocks, Facts, Guarantees, MECHANISMS, Plan, Request, StepDown, Unfit};
use thalweg_sys::host::FileSystem;

use crate::{CopyOptions, When, threads::locked};

/// Pairs of file systems, by their device numbers.
#[derive(Debug, Default)]
pub(crate) struct DevicePairs(Mutex<HashMap<Devices, Arc<DevicePair>>>);

/// The device numbers of two file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Devices {
    pub source: u64,
    pub sink: u64,
}

/// Facts about one pair of file systems.
#[derive(Debug)]
pub(crate) struct DevicePair {
    facts: Facts,
    unfit: Mutex<HashMap<&'static str, Unfit>>,
}

// Errors if the kernel or file system does not support a mechanism. Other errors may concern only one file.
const FOR_GOOD: [&str; 6] = ["ENOSYS", "EOPNOTSUPP", "EXDEV", "ENOTTY", "EINVAL", "EPERM"];

impl DevicePairs {
    /// Returns the pair for a transfer between regular files. Its facts are queried once.
    pub fn of(&self, devices: Devices, facts: impl FnOnce() -> Facts) -> Arc<DevicePair> {
        let mut pairs = locked(&self.0);
        let pair = pairs.entry(devices).or_insert_with(|| {
            let mut facts = facts();
            // The pair must not contain facts of one file. The copy is a new file, even if space was already
            // preallocated in it. Other source files of the pair may change, even if this one cannot.
            (facts.sink.filled, facts.source.unchanging) = (false, false);
            Arc::new(DevicePair { facts, unfit: Mutex::default() })
        });
        Arc::clone(pair)
    }
}

impl DevicePair {
    /// Returns the plan for a file of `len` bytes.
    pub fn plan(&self, options: &CopyOptions, needs: Guarantees, len: Option<u64>) -> Plan {
        let facts = Facts { len, needs, ..self.facts.clone() };
        let mut request = request(options);
        let unfit = locked(&self.unfit);
        for (name, reason) in unfit.iter() {
            request.unfit.entry(name).or_insert_with(|| reason.clone());
        }
        Plan::make(&facts, &request, options.profile.as_deref())
    }

    /// Returns `true` if file systems of this type are known not to support clones. The driver still tries a clone,
    /// because a newer kernel may support it.
    pub fn is_known_without_clones(&self) -> bool {
        self.facts.sink.fs.as_ref().is_some_and(FileSystem::is_known_without_clones)
    }

    /// Records a mechanism that failed at the first byte with an error that will not go away.
    pub fn learn(&self, step: &StepDown) {
        let for_good = step.errno.is_empty() || FOR_GOOD.contains(&step.errno);
        if step.at == 0 && for_good {
            let reason = format!("{}: {} (failed earlier in this run)", step.call, step.reason);
            let mut unfit = locked(&self.unfit);
            unfit.insert(step.from, Unfit::because(reason));
        }
    }
}

/// Returns the planner request that corresponds to the options.
pub(crate) fn request(options: &CopyOptions) -> Request {
    let mut request = options.request.clone();
    // A clone of a file with holes has these holes too, so `When::Never` for `sparse` excludes clones, as in GNU `cp`.
    if options.reflink == When::Never || options.sparse == When::Never {
        let infos = MECHANISMS.iter().map(|m| m.info());
        let may_clone = infos.filter(|info| info.nature.blocks != Blocks::Own);
        request.without.extend(may_clone.map(|info| info.name.to_owned()));
    }
    if options.direct {
        let direct = MECHANISMS.iter().map(|m| m.info()).filter(|info| info.waits_for("--direct"));
        for name in direct.map(|info| info.name) {
            request.asked_for.push(name.to_owned());
            request.only.get_or_insert_with(|| name.to_owned());
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use thalweg_core::Transfer;

    fn step(errno: &'static str, at: u64) -> StepDown {
        let reason = String::new();
        StepDown { from: "splice", to: "read-write", at, call: "splice", errno, reason }
    }

    #[test]
    fn only_a_refusal_for_good_at_the_first_byte_is_remembered() {
        let (from, to) = (File::open("/proc/self/exe").unwrap(), tempfile::tempfile().unwrap());
        let transfer = Transfer::between(&from, &to).unwrap();
        let pairs = DevicePairs::default();
        let facts = || Facts::of(&transfer);
        let devices = |source, sink| Devices { source, sink };
        let pair = pairs.of(devices(1, 2), facts);
        pair.learn(&step("EOPNOTSUPP", 4096));
        pair.learn(&step("EIO", 0));
        assert!(pair.unfit.lock().unwrap().is_empty());
        pair.learn(&step("EOPNOTSUPP", 0));
        assert!(pairs.of(devices(1, 2), facts).unfit.lock().unwrap().contains_key("splice"));
        assert!(pairs.of(devices(2, 1), facts).unfit.lock().unwrap().is_empty());
    }

    #[test]
    fn no_clones_means_also_none_by_the_back_door() {
        let options = CopyOptions { reflink: When::Never, ..CopyOptions::default() };
        let without = request(&options).without;
        for info in MECHANISMS.iter().map(|m| m.info()) {
            let is_out = without.iter().any(|name| name == info.name);
            assert_eq!(is_out, info.nature.blocks != Blocks::Own, "{}", info.name);
        }
        assert!(without.len() > 1, "also what clones unasked");
    }
}
