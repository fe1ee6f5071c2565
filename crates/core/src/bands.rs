//! Kernels by size, from memory to memory and for filling it: from measured cells to the bands of
//! `tuned`.
//!
//! A kernel has to beat the C library by more than the noise to begin a band; else the C library
//! stands. Short copies, which programs mix, have one kernel. A band goes on while its kernel is not shown
//! to lose, and does not lose by more than the noise or a few percent. Where copies between places that no cache
//! holds were measured too, it must not lose there either; and where short ones of one size again and again were, which
//! a processor learns as it does not learn a mixture, it loses a few percent there at most, and less than it gains. Of those that may begin one, the one that goes on longest does: fewer
//! bands are fewer branches to mispredict. Between two bands nobody measured, and each has its half of
//! the octaves. Above the caches neither changes its character, so the last band goes on where it got
//! there.

mod longest;

use serde::Serialize;
use thalweg_kernels::{Bands, FILLS, by_name, tuned};
use thalweg_sys::host::largest_cache;

use crate::{
    Prefer,
    profile::{COLD, Cell, FILL, Load, Profile, REPEATED, Ratio, Stale},
};
use longest::{AtSize, Beside, give_up_least, halfway, longest};

const MEMORY: &str = "memory";

/// What bands are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Copy,
    Fill,
}

impl Work {
    /// As the cells have it.
    fn source(self) -> &'static str {
        match self {
            Self::Copy => MEMORY,
            Self::Fill => FILL,
        }
    }

    /// So many times its size is in the caches.
    fn touches(self) -> u64 {
        match self {
            Self::Copy => 2,
            Self::Fill => 1,
        }
    }
}

/// The kernel for the sizes up to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// In bytes; halfway, in octaves, from the last size at which this was measured best to the first of
    /// the next band.
    pub upto: u64,
    /// Whether it serves all larger sizes too, which were not measured: only the last one, and only if
    /// what it touches at that size did not fit the caches.
    pub extrapolated: bool,
    /// The kernel.
    pub kernel: String,
    /// Its times against the C library's: the smallest of its gains among the measured sizes of
    /// the band. Exactly 1 for the C library itself.
    pub ratio: Ratio,
    /// Sessions behind it.
    pub sessions: u32,
    /// When it was measured.
    pub at: String,
}

/// Why measured bands cannot be used in this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BandsError {
    /// The profile names a kernel that this build does not have.
    #[error("no kernel of the name {0}")]
    Unknown(String),
    /// The kernels refuse the bands.
    #[error("{0}")]
    Unfit(tuned::Unfit),
}

impl Profile {
    /// What was measured of copy kernels, as bands of rising sizes; empty if nothing was.
    pub fn kernel_bands(&self, load: Load, prefer: Prefer) -> Vec<Band> {
        self.bands_beside(Work::Copy, largest_cache, (load, prefer))
    }

    /// The same of the kernels that fill.
    pub fn fill_bands(&self, load: Load, prefer: Prefer) -> Vec<Band> {
        self.bands_beside(Work::Fill, largest_cache, (load, prefer))
    }

    /// The same on a machine with this largest cache, which is asked for where there is a band.
    fn bands_beside(
        &self,
        work: Work,
        cache: impl FnOnce() -> Option<u64>,
        (load, prefer): (Load, Prefer),
    ) -> Vec<Band> {
        let cells = self.cells_of(work, MEMORY, load);
        let cold = self.cells_of(work, COLD, load);
        let repeated = self.cells_of(work, REPEATED, load);
        let mut sizes: Vec<AtSize<'_>> = Vec::new();
        for cells in cells.chunk_by(|a, b| a.size == b.size) {
            let Some(size) = cells.first().map(|cell| cell.size) else { continue };
            let below = sizes.last().map_or(0, |below| below.bytes);
            let within = |least| move |cell: &&&Cell| (least..=size).contains(&cell.size);
            let beside = Beside {
                cold: cold.iter().filter(within(size)).copied().collect(),
                // A band that begins here has the sizes since the one below, too.
                repeated: repeated.iter().filter(within(below + 1)).copied().collect(),
            };
            sizes.extend(AtSize::of(cells, &beside, prefer));
        }
        let (mut bands, mut left) = (Vec::new(), &sizes[..]);
        while let Some((band, rest)) = longest(left) {
            bands.push(band);
            left = rest;
        }
        while bands.len() > tuned::MOST {
            give_up_least(&mut bands);
        }
        for band in &mut bands {
            if let Some(next) = sizes.iter().map(|size| size.bytes).find(|size| *size > band.upto) {
                band.upto = halfway(band.upto, next);
            }
        }
        if let Some(last) = bands.last_mut() {
            let beyond = |cache| last.upto.saturating_mul(work.touches()) > cache;
            last.extrapolated = cache().is_some_and(beyond);
        }
        bands
    }

    /// What was measured of a work with this sink, by rising sizes; under that load, or under any if nothing was
    /// under that.
    fn cells_of(&self, work: Work, sink: &str, load: Load) -> Vec<&Cell> {
        let of_work = |cell: &&Cell| cell.source == work.source() && cell.sink == sink;
        let any = self.cells.iter().filter(of_work).any(|cell| cell.load == load);
        let wanted = |cell: &&Cell| of_work(cell) && (cell.load == load || !any);
        let mut cells: Vec<&Cell> = self.cells.iter().filter(wanted).collect();
        cells.sort_by_key(|cell| cell.size);
        cells
    }

    /// Both, ready for [`Bands::install`].
    pub fn kernels(&self, load: Load, prefer: Prefer) -> Result<Bands, BandsError> {
        let unknown = |name: &str| BandsError::Unknown(name.to_owned());
        let copies = rows(&self.kernel_bands(load, prefer), |name| {
            by_name(name).ok_or_else(|| unknown(name))
        })?;
        let fills = rows(&self.fill_bands(load, prefer), |name| {
            FILLS.iter().find(|row| row.name == name).ok_or_else(|| unknown(name))
        })?;
        let bands = Bands::of(&copies).and_then(|bands| bands.with_fills(&fills));
        bands.map_err(BandsError::Unfit)
    }

    /// Has memory copied and filled by the kernels that were measured best on the idle machine, for
    /// the rest of the process. The first profile that knows of any decides; others, and one that was measured
    /// on another machine, change nothing: `stale` is what [`Profile::stale`] answered.
    pub fn install_kernels(&self, stale: &[Stale]) {
        if stale.iter().any(Stale::touches_memory) {
            return;
        }
        let idle = (Load::Idle, Prefer::Wall);
        if self.kernel_bands(idle.0, idle.1).is_empty()
            && self.fill_bands(idle.0, idle.1).is_empty()
        {
            return;
        }
        // Kernels of another build are not used: the C library's stay.
        if let Ok(bands) = self.kernels(idle.0, idle.1) {
            let _ = bands.install();
        }
    }
}

/// Bands as the kernels take them.
fn rows<R>(
    bands: &[Band],
    named: impl Fn(&str) -> Result<R, BandsError>,
) -> Result<Vec<(usize, R)>, BandsError> {
    let row = |band: &Band| {
        let upto = usize::try_from(band.end()).unwrap_or(usize::MAX);
        named(&band.kernel).map(|row| (upto, row))
    };
    bands.iter().map(row).collect()
}

impl Band {
    /// The largest size it serves.
    pub fn end(&self) -> u64 {
        if self.extrapolated { u64::MAX } else { self.upto }
    }

    /// The band of a size among rising ones; `None` where the C library serves it unmeasured.
    pub fn of(bands: &[Self], size: u64) -> Option<&Self> {
        bands.iter().find(|band| size <= band.end())
    }

    fn take_in(&mut self, later: Self) {
        self.upto = later.upto;
        self.sessions = self.sessions.min(later.sessions);
        self.at = std::mem::take(&mut self.at).max(later.at);
        if later.ratio.ratio > self.ratio.ratio {
            self.ratio = later.ratio;
        }
    }
}

#[cfg(test)]
mod tests;
