//! The list of mechanisms. Each mechanism has one file, and one line in the list.
//!
//! The list is written by hand, the safest mechanism first. If nothing was measured, mechanisms with a
//! [`likely`](crate::Pair::likely) pair are preferred. Otherwise, and in a tie of measurements, the earlier mechanism
//! is preferred. The manual, `thalweg list`, the planner, the lab and the conformance tests use this list.

use crate::{Blocks, Mechanism};

mod copy_file_range;
mod io_uring;
mod mmap_write;
mod msg_zerocopy;
mod null;
mod read_write;
mod read_write_direct;
mod read_write_parallel;
mod reflink;
mod sendfile;
mod splice;
mod splice_threaded;
mod vmsplice;

/// All mechanisms of this build.
pub static MECHANISMS: &[&dyn Mechanism] = &[
    &read_write::ReadWrite,
    &reflink::Reflink,
    &copy_file_range::CopyFileRange,
    &splice::Splice,
    &sendfile::Sendfile,
    &io_uring::IoUring,
    &read_write_parallel::ReadWriteParallel,
    &mmap_write::MmapWrite,
    &read_write_direct::ReadWriteDirect,
    &splice_threaded::SpliceThreaded,
    &vmsplice::Vmsplice,
    &msg_zerocopy::MsgZerocopy,
    &null::Null,
];

/// The mechanism that serves every pair and gives every guarantee: the reference of the tests, and the last resort.
pub static LAST_RESORT: &dyn Mechanism = &read_write::ReadWrite;

/// Returns the mechanism that clones or fails, as `--reflink=always` requires.
pub fn cloner() -> Option<&'static dyn Mechanism> {
    MECHANISMS.iter().find(|m| m.info().nature.blocks == Blocks::Shared).copied()
}

/// Returns the mechanism of this name.
pub fn by_name(name: &str) -> Option<&'static dyn Mechanism> {
    MECHANISMS.iter().find(|m| m.info().name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_is_one_file_and_one_line() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mechanisms");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let stems =
            entries.map(|path| path.file_stem().unwrap().to_string_lossy().replace('_', "-"));
        let mut files: Vec<String> = stems.filter(|stem| stem != "mod").collect();
        let mut listed: Vec<&str> = MECHANISMS.iter().map(|m| m.info().name).collect();
        files.sort_unstable();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }

    #[test]
    fn knobs_have_a_choice() {
        for mechanism in MECHANISMS {
            let info = mechanism.info();
            assert!(!info.summary.is_empty() && !info.summary.ends_with('.'));
            assert!(!info.pairs.is_empty(), "{}", info.name);
            for knob in info.knobs {
                assert!(knob.values.len() >= 2, "{}: {}", info.name, knob.name);
            }
        }
    }
}
