//! The key of a profile: what makes a measured ratio belong to this machine and no other.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};
use thalweg_kernels::cpu::{self, hidden as hidden_features};
use thalweg_sys::host;

use crate::quantity::Size;

/// Keys of which no loop in memory knows.
const OUTSIDE_MEMORY: [&str; 3] = ["affinity", "capabilities", "pipe-max-size"];

/// Key -> value, as read from the running system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Machine(BTreeMap<String, String>);

/// A key that differs between a profile and this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// The key.
    pub key: String,
    /// Its value in the profile.
    pub was: String,
    /// Its value now.
    pub is: String,
}

impl Machine {
    /// This machine, now. What it does not tell is left out.
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

    /// The keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The keys of `self` that `now` has otherwise, or not at all.
    pub fn differences(&self, now: &Self) -> Vec<Stale> {
        let differing = self.0.iter().filter(|(key, was)| now.0.get(*key) != Some(was));
        differing
            .map(|(key, was)| Stale {
                key: key.clone(),
                was: was.clone(),
                is: now.0.get(key).cloned().unwrap_or_default(),
            })
            .collect()
    }
}

/// The processor's name, and what the user hides of it: what was measured with all features is not
/// what this process can do then.
fn processor() -> Option<String> {
    let model = host::cpu_model()?;
    match hidden_features() {
        Ok(hidden) if !hidden.is_empty() => Some(format!("{model} without {}", hidden.join(", "))),
        _ => Some(model),
    }
}

/// The features that kernels ask for and may use here.
fn cpu_features() -> Option<String> {
    Some(cpu::usable().collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty())
}

/// The sizes of the data caches, nearest first.
fn caches() -> Option<String> {
    let sizes = (1..=3).map_while(host::cache_size).map(|bytes| Size(bytes).to_string());
    Some(sizes.collect::<Vec<_>>().join(" ")).filter(|all| !all.is_empty())
}

impl Stale {
    /// Whether it changes what was measured of loops in memory.
    pub fn touches_memory(&self) -> bool {
        !OUTSIDE_MEMORY.contains(&&*self.key)
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was \"{}\", is \"{}\"", self.key, self.was, self.is)
    }
}
