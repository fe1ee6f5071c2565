//! Chooses the kernel that copies or fills memory, by size. It converts measured cells to bands for
//! `thalweg_kernels::tuned`: ranges of sizes that share one kernel.
//!
//! A kernel must beat the C library by more than the noise to begin a band. All short copies share one kernel, because
//! programs mix short sizes. A band ends before the first size at which its kernel loses. A kernel loses if it is shown
//! to be slower than the C library. It also loses if its median is slower by more than the noise, or by more than a few
//! percent.
//!
//! Two further kinds of measurements count if they exist. In copies between uncached memory, a kernel must not lose. In
//! short copies of one repeated size, which a branch predictor learns, a kernel may lose a few percent. This loss must
//! be smaller than its gain with mixed sizes.
//!
//! If several kernels may begin a band, the one with the longest band is chosen, because fewer bands mean fewer
//! mispredicted branches. Sizes between two bands were not measured, so each band gets half of this gap, in octaves.
//! For sizes larger than the caches, a kernel's relative speed no longer changes. The last band therefore has no upper
//! limit if it was measured at such a size.

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

/// The work of a kernel: copying or filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelWork {
    Copy,
    Fill,
}

impl KernelWork {
    /// Returns the value of [`Cell::source`] for this work.
    fn source(self) -> &'static str {
        match self {
            Self::Copy => MEMORY,
            Self::Fill => FILL,
        }
    }

    /// Returns the number of bytes read and written per byte of work. All of them occupy the caches.
    fn touches(self) -> u64 {
        match self {
            Self::Copy => 2,
            Self::Fill => 1,
        }
    }
}

/// The kernel for the sizes up to `upto`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The largest size in bytes. It is halfway, in octaves, between the last measured size of this band and the first
    /// measured size of the next one.
    pub upto: u64,
    /// `true` if the band also serves all larger sizes, although these were not measured. Only the last band can be
    /// extrapolated, and only if a copy or fill of its largest measured size touches more memory than the largest cache
    /// holds.
    pub extrapolated: bool,
    /// The kernel.
    pub kernel: String,
    /// The kernel's time divided by the C library's, at the measured size of the band with the smallest gain. Exactly 1
    /// for the C library itself.
    pub ratio: Ratio,
    /// Number of measurement sessions behind the ratio.
    pub sessions: u32,
    /// The date of the measurement.
    pub at: String,
}

/// The reason that measured bands cannot be used in this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BandsError {
    /// The profile names a kernel that this build does not have.
    #[error("unknown kernel {0}")]
    Unknown(String),
    /// The kernels reject the bands.
    #[error("{0}")]
    Unfit(tuned::Unfit),
}

impl Profile {
    /// Returns the bands of copy kernels, by rising size; empty if nothing was measured.
    pub fn kernel_bands(&self, load: Load, prefer: Prefer) -> Vec<Band> {
        self.bands_beside(KernelWork::Copy, largest_cache, (load, prefer))
    }

    /// Returns the bands of fill kernels, by rising size; empty if nothing was measured.
    pub fn fill_bands(&self, load: Load, prefer: Prefer) -> Vec<Band> {
        self.bands_beside(KernelWork::Fill, largest_cache, (load, prefer))
    }

    /// Returns the bands. `cache` returns the size of the largest cache; it is called only if a band exists.
    fn bands_beside(
        &self,
        work: KernelWork,
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
                // A band that begins at this size also serves the sizes above the previous measured size.
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

    /// Returns the cells for this work and sink, by rising size. If nothing was measured under `load`, returns the
    /// cells of any load.
    fn cells_of(&self, work: KernelWork, sink: &str, load: Load) -> Vec<&Cell> {
        let of_work = |cell: &&Cell| cell.source == work.source() && cell.sink == sink;
        let any = self.cells.iter().filter(of_work).any(|cell| cell.load == load);
        let wanted = |cell: &&Cell| of_work(cell) && (cell.load == load || !any);
        let mut cells: Vec<&Cell> = self.cells.iter().filter(wanted).collect();
        cells.sort_by_key(|cell| cell.size);
        cells
    }

    /// Returns the bands for copying and filling, ready for [`Bands::install`].
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

    /// Makes the process copy and fill memory with the kernels that were measured best on the idle machine. The first
    /// profile with measured kernels decides; later calls have no effect. `stale` is the result of [`Profile::stale`].
    /// If it contains a difference that influences memory, the call has no effect.
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
        // A profile of another build may name kernels that do not exist here. The C library's are then used.
        if let Ok(bands) = self.kernels(idle.0, idle.1) {
            let _ = bands.install();
        }
    }
}

/// Converts bands to the form that `thalweg_kernels` accepts.
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
    /// Returns the largest size that the band serves.
    pub fn end(&self) -> u64 {
        if self.extrapolated { u64::MAX } else { self.upto }
    }

    /// Returns the band of a size; `None` if the size is above all bands, so that the C library serves it.
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
