//! Measurements of this machine: ratios to `read-write`, with the conditions under which they hold. Each measurement is
//! a cell. A survey (`thalweg tune`) records cells, and a copy records provisional ones if a survey's prediction was
//! wrong.
//!
//! FFTW calls such a file wisdom. Unlike wisdom, a profile records the machine it was measured on. If kernel, CPU or
//! limits differ, the profile is stale, and [`Profile::stale`] reports which of them changed.

use serde::{Deserialize, Serialize};
use std::{io, path::PathBuf};

pub(crate) mod cell;
mod evidence;
mod file;
mod machine;
mod turn;

use crate::failed::{of_io, quoted};

pub use cell::{Cell, Load, Ratio, SinkState};
pub use evidence::{Evidence, MatchingCells, day};
pub use machine::{Machine, Stale};
pub use turn::ProfileLock;

/// The C library's memory kernel, the reference of the other kernels. It is used unless another is shown to be faster.
pub const LIBC: &str = "libc";
/// The source of cells that measure setting memory to a byte value.
pub const FILL: &str = "fill";
/// The largest size of a short copy, in bytes. Programs mix short sizes, so a survey mixes them as well. Larger sizes
/// are usually buffer sizes, which repeat.
pub const SHORT: u64 = 4096;
/// The sink of cells that measure copies between uncached memory. Their source is `memory`.
pub const COLD: &str = "cold";
/// The sink of cells that measure short copies or fills of one repeated size, which the branch predictor learns.
pub const REPEATED: &str = "repeated";
/// Suffix of a sink's key: its reader requests 1 MiB per call instead of the usual 64 KiB.
pub const LARGE_READS: &str = ":1M";
/// The version of the file format.
pub const SCHEMA: u32 = 1;
/// The least noise floor. Smaller differences never count, even in a stable run.
pub const LEAST_NOISE: f64 = 0.03;

/// A measured profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The format version, [`SCHEMA`].
    pub schema: u32,
    /// The machine on which the profile was measured.
    pub machine: Machine,
    /// The measurements.
    pub cells: Vec<Cell>,
}

/// The reason that a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read or written.
    #[error("{}", of_io(&quoted(path), call, source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The name of the system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a profile of this version.
    #[error("{}: not a usable profile: {reason}", quoted(path))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The defect, and its position in the file.
        reason: String,
    },
}

impl Profile {
    /// Creates an empty profile of this machine.
    pub fn new() -> Self {
        Self { schema: SCHEMA, machine: Machine::this(), cells: Vec::new() }
    }

    /// Returns the keys in which this machine differs from the one on which the profile was measured.
    pub fn stale(&self) -> Vec<Stale> {
        self.machine.differences(&Machine::this())
    }

    /// Returns the differences that influence kernels in memory. CPU affinity, capabilities and pipe limits do not.
    pub fn stale_in_memory(&self) -> Vec<Stale> {
        self.stale().into_iter().filter(Stale::touches_memory).collect()
    }

    /// Returns the measurements that are valid here; `None` if none is. If `stale` is empty, all are valid. If no
    /// difference in `stale` influences memory, those of copies and fills in memory are valid. `stale` is the result of
    /// [`Profile::stale`].
    pub fn valid_part(mut self, stale: &[Stale]) -> Option<Self> {
        if stale.is_empty() {
            return Some(self);
        }
        self.cells.retain(Cell::is_of_memory);
        let is_valid = !self.cells.is_empty() && !stale.iter().any(Stale::touches_memory);
        is_valid.then_some(self)
    }

    /// Adds newer cells. Each replaces the older cell of the same conditions.
    ///
    /// A cell of a survey also removes the provisional cells that copies recorded between the same endpoints.
    pub fn merge(&mut self, cells: Vec<Cell>) {
        let ends = |new: &Cell, old: &Cell| {
            new.same_conditions(old) || old.provisional && !new.provisional && new.same_survey(old)
        };
        self.cells.retain(|old| !cells.iter().any(|new| ends(new, old)));
        self.cells.extend(cells);
        self.cells.sort_by(|a, b| a.order().cmp(&b.order()));
    }

    /// Removes the provisional cells that copies recorded between the endpoints of this cell at about its size, so that
    /// the survey's measurements apply again. Returns `true` if it removed any.
    pub fn forget(&mut self, cell: &Cell) -> bool {
        let before = self.cells.len();
        let is_over =
            |old: &Cell| old.provisional && old.same_survey(cell) && old.reaches(Some(cell.size));
        self.cells.retain(|old| !is_over(old));
        self.cells.len() < before
    }

    /// Adds cells that copies recorded, dated `at`. Returns `true` if it added any. Adds nothing to
    /// a stale profile: it makes no predictions for this machine, so there is nothing for copies to correct.
    pub fn learn<'c>(&mut self, seen: impl IntoIterator<Item = &'c Cell>, at: &str) -> bool {
        let dated = |cell: &Cell| Cell { at: at.to_owned(), ..cell.clone() };
        let cells: Vec<_> = seen.into_iter().map(dated).collect();
        let has_learnt = !cells.is_empty() && self.stale().is_empty();
        if has_learnt {
            // Merged one by one: if several copies recorded the same conditions, the last one counts.
            for cell in cells {
                self.merge(vec![cell]);
            }
        }
        has_learnt
    }

    /// Adds a whole survey. All older cells between the same endpoints and under the same conditions are removed,
    /// including mechanisms, tunings and sizes that the survey does not contain.
    pub fn replace(&mut self, cells: Vec<Cell>) {
        self.cells.retain(|old| !cells.iter().any(|new| new.same_survey(old)));
        self.merge(cells);
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning;

    #[test]
    fn newer_cells_replace_older_ones_of_the_same_conditions() {
        let mut profile = Profile::new();
        profile.merge(vec![cell::tests::cell("splice", 4096, 0.8)]);
        profile.merge(vec![
            cell::tests::cell("splice", 4096, 0.5),
            cell::tests::cell("splice", 8192, 0.6),
        ]);
        let ratios: Vec<f64> = profile.cells.iter().map(|c| c.wall.ratio).collect();
        assert_eq!(ratios, [0.5, 0.6]);
    }

    #[test]
    fn a_survey_replaces_all_of_its_ends_and_conditions_and_nothing_else() {
        let mut profile = Profile::new();
        let old = cell::tests::cell("splice", 4096, 0.8);
        let loaded = Cell { load: Load::Loaded, ..old.clone() };
        let elsewhere = Cell { sink: "socket:unix".into(), ..old.clone() };
        profile.merge(vec![old, loaded.clone(), elsewhere.clone()]);
        let new = cell::tests::cell("read-write", 1 << 20, 1.0);
        profile.replace(vec![new.clone()]);
        assert_eq!(profile.cells, [new, loaded, elsewhere]);
    }

    #[test]
    fn another_kernel_makes_the_profile_stale_and_is_named() {
        let mut profile = Profile::new();
        assert!(profile.stale().is_empty());
        profile.machine.set("kernel", "2.6.17");
        let stale = profile.stale();
        assert_eq!(stale.len(), 1);
        assert!(stale[0].to_string().contains("2.6.17"), "{}", stale[0]);
    }

    #[test]
    fn a_profile_without_a_key_of_this_machine_is_stale() {
        let mut profile = Profile::new();
        profile.machine = serde_json::from_str("{}").unwrap();
        let missing: Vec<String> = profile.stale().into_iter().map(|stale| stale.key).collect();
        let known: Vec<String> = Machine::this().iter().map(|(key, _)| key.to_owned()).collect();
        assert!(!known.is_empty() && missing == known, "{missing:?} {known:?}");
    }

    #[test]
    fn a_process_that_is_pinned_keeps_its_kernels_and_one_of_another_processor_does_not() {
        let mut profile = Profile::new();
        profile.machine.set("affinity", "0-4095");
        assert_eq!(profile.stale().len(), 1);
        assert!(profile.stale_in_memory().is_empty());
        profile.machine.set("cpu", "of another machine");
        let stale: Vec<String> = profile.stale_in_memory().into_iter().map(|s| s.key).collect();
        assert_eq!(stale, ["cpu"]);
    }

    #[test]
    fn a_process_that_is_pinned_keeps_the_measurements_of_memory_only() {
        let file = cell::tests::cell("splice", 4096, 0.8);
        let between = |source: &str, sink: &str| Cell {
            source: source.into(),
            sink: sink.into(),
            ..file.clone()
        };
        let of_memory =
            [between("memory", "memory"), between("memory", COLD), between(FILL, "memory")];
        let mut profile = Profile::new();
        profile.cells.push(file.clone());
        profile.cells.push(between("memory", "file:ext4"));
        let valid = |profile: &Profile| profile.clone().valid_part(&profile.stale());
        assert_eq!(valid(&profile).as_ref(), Some(&profile));
        profile.machine.set("affinity", "0-4095");
        assert_eq!(valid(&profile), None, "no measurement of memory");
        profile.cells.extend(of_memory.clone());
        assert_eq!(valid(&profile).unwrap().cells, of_memory);
        profile.machine.set("libc", "of another machine");
        assert_eq!(valid(&profile), None);
    }

    #[test]
    fn nonsense_is_refused_with_the_place() {
        let good = serde_json::to_value(Profile::new()).unwrap();
        let mut bad = good.clone();
        bad["schema"] = 99.into();
        assert!(Profile::parse(bad.to_string().as_bytes()).unwrap_err().contains("99"));
        let mut bad = good;
        let mut cell = serde_json::to_value(cell::tests::cell("splice", 4096, 0.8)).unwrap();
        cell["wall"]["ratio"] = (-1.0).into();
        bad["cells"] = vec![cell].into();
        assert!(Profile::parse(bad.to_string().as_bytes()).unwrap_err().contains("cells[0]"));
        assert!(Profile::parse(b"{").is_err());
    }

    #[test]
    fn a_buffer_of_exabytes_is_refused_and_a_knob_of_the_future_is_not() {
        let parse = |knob, value| {
            let mut profile = Profile::new();
            let mut cell = cell::tests::cell("read-write", 4096, 0.8);
            cell.tuning = Tuning::of(knob, value);
            profile.merge(vec![cell]);
            Profile::parse(&serde_json::to_vec(&profile).unwrap())
        };
        assert!(parse("buffer", 1 << 63).unwrap_err().contains("buffer=9223372036854775808"));
        assert!(parse("buffer", 64 << 10).is_ok());
        assert!(parse("no-such-knob", 1 << 63).is_ok());
    }
}
