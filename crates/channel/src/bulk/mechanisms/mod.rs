//! The list of mechanisms. Each has one file and one line here.
//!
//! The order is that in which mechanisms are tried without measurements; in a tie the earlier one
//! wins. The manual, `thalweg list`, the choice, the studies and the conformance tests all use this
//! list.

use super::Mechanism;

mod coop;
mod io_uring;
mod pipe;
mod process_vm;
mod pull;
mod ring;
mod shm_locked;
mod snapshot;
mod unix_seqpacket;
mod unix_stream;
mod vmsplice_both;
mod vmsplice_read;

/// All mechanisms of this build.
pub static MECHANISMS: &[&dyn Mechanism] = &[
    &ring::RingMechanism,
    &pull::PullMechanism,
    &coop::Coop,
    &snapshot::Snapshot,
    &unix_stream::MECHANISM,
    &pipe::MECHANISM,
    &unix_seqpacket::MECHANISM,
    &process_vm::ProcessVm,
    &shm_locked::ShmLocked,
    &io_uring::IoUringMechanism,
    &vmsplice_read::MECHANISM,
    &vmsplice_both::MECHANISM,
];

/// Returns the mechanism with this name.
pub fn by_name(name: &str) -> Option<&'static dyn Mechanism> {
    MECHANISMS.iter().find(|mechanism| mechanism.info().name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_is_one_file_and_one_line() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bulk/mechanisms");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let stems =
            entries.map(|path| path.file_stem().unwrap().to_string_lossy().replace('_', "-"));
        let mut files: Vec<String> = stems.filter(|stem| stem != "mod").collect();
        let mut listed: Vec<&str> =
            MECHANISMS.iter().map(|mechanism| mechanism.info().name).collect();
        files.sort_unstable();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }

    #[test]
    fn knobs_have_a_choice() {
        for mechanism in MECHANISMS {
            let info = mechanism.info();
            assert!(!info.summary.is_empty() && !info.summary.ends_with('.'));
            assert!(!info.calls.is_empty() || !info.knobs.is_empty(), "{}", info.name);
            for knob in info.knobs {
                assert!(knob.values.len() >= 2, "{}: {}", info.name, knob.name);
            }
            let tunings = info.tunings();
            let count: usize = info.knobs.iter().map(|knob| knob.values.len()).product();
            assert!(tunings[0].is_default() && tunings.len() == count, "{}", info.name);
        }
    }
}
