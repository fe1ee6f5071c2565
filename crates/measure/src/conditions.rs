//! The conditions of a measurement. Conditions are printed and saved with the result, and never affect a verdict.

use serde::Serialize;
use std::{collections::BTreeMap, fs, path::Path, time::SystemTime};
use thalweg_channel::bulk::{measured_at, saved_profile};
use thalweg_core::profile::Machine;
use thalweg_sys::host::filesystem;

pub mod jdk;

/// The machine and its state.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Time of the measurement (RFC 3339).
    pub at: String,
    /// Kernel, CPU, cores and the other keys of a profile.
    pub machine: Machine,
    /// The frequency governor of the first CPU, if it has one.
    pub governor: Option<String>,
    /// Load average over 1, 5 and 15 minutes.
    pub load_average: Option<String>,
    /// Percentage of the last ten seconds in which some task waited, by resource (PSI).
    pub pressure: BTreeMap<String, f64>,
    /// Settings that affect writeback, networking and the cost of system calls, by name. The map also contains the JDKs
    /// for arms (compared variants) in Java, and the date of the profile that `auto` uses between processes.
    pub settings: BTreeMap<String, String>,
    /// File systems of the paths involved: path, name, mount options.
    pub file_systems: Vec<[String; 3]>,
}

impl Conditions {
    /// Returns the current conditions for work between these paths.
    pub fn now(places: &[&Path]) -> Self {
        let load = line_of("/proc/loadavg");
        let first_three = |line: String| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
        Self {
            at: now(),
            machine: Machine::this(),
            governor: line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: load.map(first_three),
            pressure: pressure(),
            settings: settings(),
            file_systems: places.iter().filter_map(|place| file_system(place)).collect(),
        }
    }
}

/// Returns the current time in RFC 3339 format, in whole seconds.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn line_of(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

/// Files under `/proc/sys` that studies depend on. Missing files are skipped.
const SETTINGS: [&str; 9] = [
    "vm/dirty_ratio",
    "vm/dirty_background_ratio",
    "vm/dirty_expire_centisecs",
    "vm/overcommit_memory",
    "vm/swappiness",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "fs/pipe-user-pages-soft",
];

fn settings() -> BTreeMap<String, String> {
    let values = SETTINGS.iter().filter_map(|name| {
        let value = line_of(&format!("/proc/sys/{name}"))?.replace('\t', " ");
        Some(((*name).to_owned(), value))
    });
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let fields = memory.lines().filter_map(|line| line.split_once(':'));
    let memory = fields.filter(|(name, _)| ["MemTotal", "SwapTotal"].contains(name));
    let memory = memory.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    values.chain(memory).chain(jdk::jdks()).chain([bulk_profile()]).collect()
}

/// Returns a setting that shows when the mechanisms between two processes were last measured for
/// the profile.
fn bulk_profile() -> (String, String) {
    let profile = saved_profile().ok();
    let newest = profile.as_ref().and_then(measured_at);
    let value = newest.map_or("not measured".to_owned(), |at| format!("measured {at}"));
    ("profile between processes".to_owned(), value)
}

fn pressure() -> BTreeMap<String, f64> {
    let resources = ["cpu", "io", "memory"].into_iter();
    let shares = resources.filter_map(|resource| {
        let line = line_of(&format!("/proc/pressure/{resource}"))?;
        Some((resource.to_owned(), share_of_ten_seconds(&line)?))
    });
    shares.collect()
}

/// Returns the `avg10` value of a line in the PSI format (Documentation/accounting/psi.rst).
fn share_of_ten_seconds(line: &str) -> Option<f64> {
    line.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

fn file_system(place: &Path) -> Option<[String; 3]> {
    let found = filesystem(fs::File::open(place).ok()?).ok()?;
    Some([place.display().to_string(), found.name.clone(), found.options().to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_machine_has_conditions() {
        let conditions = Conditions::now(&[Path::new("/"), Path::new("/no/such/place")]);
        assert!(conditions.machine.iter().any(|(key, _)| key == "kernel"));
        assert_eq!(conditions.file_systems.len(), 1);
        assert!(conditions.at.ends_with('Z'), "{}", conditions.at);
    }

    #[test]
    fn pressure_is_read_from_its_line() {
        let line = "some avg10=1.53 avg60=1.00 avg300=0.45 total=1";
        assert!((share_of_ten_seconds(line).unwrap() - 1.53).abs() < 1e-12);
        assert!(share_of_ten_seconds("").is_none());
    }
}
