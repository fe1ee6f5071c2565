//! The key of a profile: the properties of a machine for which measured ratios are valid.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use thalweg_kernels::cpu::{self, hidden as hidden_features};
use thalweg_sys::host;

use crate::quantity::Size;

/// Keys that do not influence loops in memory.
const OUTSIDE_MEMORY: [&str; 3] = ["affinity", "capabilities", "pipe-max-size"];

/// Maps keys to values, as read from the running system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Machine(BTreeMap<String, String>);

/// A key that differs between a profile and this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// The key.
    pub key: String,
    /// The value of the key in the profile.
    pub was: String,
    /// The value of the key on this machine now.
    pub is: String,
}

impl Machine {
    /// Returns the key of this machine, now. Unavailable properties are omitted.
    pub fn this() -> Self {
        let number = |value: Option<u64>| value.map(|n| n.to_string());
        let thread = host::ThreadStatus::now();
        let facts = [
            ("kernel", Some(host::kernel_release())),
            ("cpu", processor()),
            ("cpu-features", cpu_features()),
            ("microcode", host::microcode()),
            ("caches", caches()),
            ("cores", number(host::cores_online())),
            ("affinity", thread.affinity()),
            ("hypervisor", host::hypervisor()),
            ("pipe-max-size", number(host::pipe_max_size())),
            ("thp", host::thp_enabled()),
            ("libc", host::libc_version()),
            ("capabilities", thread.capabilities()),
        ];
        let known = facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Self(known.collect())
    }

    /// Sets one key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }

    /// Returns the keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Returns the keys with different values. A key that only one of the two machines has is different, too.
    pub fn differences(&self, now: &Self) -> Vec<Stale> {
        let keys: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let value = |of: &Self, key: &str| of.0.get(key).cloned().unwrap_or_default();
        keys.into_iter()
            .filter(|key| self.0.get(*key) != now.0.get(*key))
            .map(|key| Stale { key: key.clone(), was: value(self, key), is: value(now, key) })
            .collect()
    }
}

/// Returns the processor's name and the features that the user hides from thalweg. Measurements
/// with a feature do not hold for a process from which it is hidden.
fn processor() -> Option<String> {
    let model = host::cpu_model()?;
    match hidden_features() {
        Ok(hidden) if !hidden.is_empty() => Some(format!("{model} without {}", hidden.join(", "))),
        _ => Some(model),
    }
}

/// Returns the features that kernels use and that are available here.
fn cpu_features() -> Option<String> {
    Some(cpu::usable().collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty())
}

/// Returns the sizes of the data caches, nearest first.
fn caches() -> Option<String> {
    let sizes = (1..=3).map_while(host::cache_size).map(|bytes| Size(bytes).to_string());
    Some(sizes.collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty())
}

impl Stale {
    /// Returns `true` if the key influences loops in memory.
    pub fn touches_memory(&self) -> bool {
        !OUTSIDE_MEMORY.contains(&&*self.key)
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was \"{}\", is \"{}\"", self.key, self.was, self.is)
    }
}
