//! What has been learnt about moving large files from one file system to another: the facts, which
//! are asked for once, and the mechanisms that refused, which are not tried again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_core::{Facts, Guarantees, Plan, Request, StepDown, Transfer, Unfit};

use crate::{CopyOptions, When};

/// Pairs of file systems, by their device numbers.
#[derive(Debug, Default)]
pub(crate) struct Pairs(Mutex<HashMap<(u64, u64), Arc<Pair>>>);

/// One pair.
#[derive(Debug)]
pub(crate) struct Pair {
    facts: Facts,
    unfit: Mutex<HashMap<&'static str, Unfit>>,
}

/// The mechanism of `--reflink`.
pub(crate) const CLONE: &str = "reflink";
// What may clone without saying so.
const MAY_CLONE: [&str; 2] = [CLONE, "copy-file-range"];
// The mechanism of `--direct`.
const DIRECT: &str = "read-write-direct";

// The kernel or a file system does not do it at all. Other refusals may be about one file.
const FOR_GOOD: [&str; 6] = ["ENOSYS", "EOPNOTSUPP", "EXDEV", "ENOTTY", "EINVAL", "EPERM"];

impl Pairs {
    /// The pair that a transfer between regular files belongs to.
    pub fn of(&self, devices: (u64, u64), transfer: &Transfer<'_>) -> Arc<Pair> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = pairs.entry(devices).or_insert_with(|| {
            let unfit = Mutex::default();
            let mut facts = Facts::of(transfer);
            // The copy is a new file, whatever room was made in it beforehand.
            facts.sink.filled = false;
            Arc::new(Pair { facts, unfit })
        });
        Arc::clone(pair)
    }
}

impl Pair {
    /// The plan for a file of `len` bytes.
    pub fn plan(&self, options: &CopyOptions, needs: Guarantees, len: Option<u64>) -> Plan {
        let facts = Facts { len, needs, ..self.facts.clone() };
        let mut request = request(options);
        let unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, reason) in unfit.iter() {
            request.unfit.entry(name).or_insert_with(|| reason.clone());
        }
        Plan::make(&facts, &request, options.profile.as_deref())
    }

    /// Learns from a refusal at the first byte.
    pub fn learn(&self, step: &StepDown) {
        let for_good = step.errno.is_empty() || FOR_GOOD.contains(&step.errno);
        if step.at == 0 && for_good {
            self.refuse(step.from, format!("{}: {} (earlier in this run)", step.call, step.reason));
        }
    }

    /// Never try this mechanism again on this pair.
    pub fn refuse(&self, mechanism: &'static str, reason: String) {
        let mut unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        unfit.insert(mechanism, Unfit::because(reason));
    }
}

/// The request to the planner that the options amount to.
pub(crate) fn request(options: &CopyOptions) -> Request {
    let mut request = options.request.clone();
    // A clone of a file with holes has them too; so with `cp`.
    if options.reflink == When::Never || options.sparse == When::Never {
        request.without.extend(MAY_CLONE.map(str::to_owned));
    }
    if options.direct {
        request.asked_for.push(DIRECT.to_owned());
        request.only.get_or_insert_with(|| DIRECT.to_owned());
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn step(errno: &'static str, at: u64) -> StepDown {
        let reason = String::new();
        StepDown { from: "splice", to: "read-write", at, call: "splice", errno, reason }
    }

    #[test]
    fn only_a_refusal_for_good_at_the_first_byte_is_remembered() {
        let (from, to) = (File::open("/proc/self/exe").unwrap(), tempfile::tempfile().unwrap());
        let transfer = Transfer::between(&from, &to).unwrap();
        let pairs = Pairs::default();
        let pair = pairs.of((1, 2), &transfer);
        pair.learn(&step("EOPNOTSUPP", 4096));
        pair.learn(&step("EIO", 0));
        assert!(pair.unfit.lock().unwrap().is_empty());
        pair.learn(&step("EOPNOTSUPP", 0));
        assert!(pairs.of((1, 2), &transfer).unfit.lock().unwrap().contains_key("splice"));
        assert!(pairs.of((2, 1), &transfer).unfit.lock().unwrap().is_empty());
    }

    #[test]
    fn no_clones_means_also_none_by_the_back_door() {
        let options = CopyOptions { reflink: When::Never, ..CopyOptions::default() };
        assert_eq!(request(&options).without, MAY_CLONE);
    }
}
