//! Copy kernels by size, from memory to memory: from measured cells to the bands of `tuned`.
//!
//! A kernel has to beat the C library by more than the noise to begin a band; else the C library
//! stands. The band goes on while the kernel does not lose by more than that: fewer bands are fewer
//! branches to mispredict. Above the caches a copy does not change its character, so the last band
//! goes on where it got there.

use serde::Serialize;
use thalweg_kernels::{Bands, by_name, tuned};
use thalweg_sys::host::caches;

use super::{Cell, LEAST_NOISE, Load, Profile, Ratio};
use crate::Prefer;

/// The kernel that the others are compared with, and that is used where nothing is shown.
pub const LIBC: &str = "libc";
const MEMORY: &str = "memory";

/// The kernel for the sizes up to one that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The largest measured size, in bytes.
    pub upto: u64,
    /// Whether it serves larger sizes too, which nobody measured: only the last one, and only if its
    /// source and sink together did not fit the caches.
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
    #[error("no copy kernel of the name {0}")]
    Unknown(String),
    /// The kernels refuse the bands.
    #[error("{0}")]
    Unfit(tuned::Unfit),
}

impl Profile {
    /// What was measured of copy kernels, as bands of rising sizes; empty if nothing was.
    pub fn kernel_bands(&self, load: Load, prefer: Prefer) -> Vec<Band> {
        let largest = caches().into_iter().map(|cache| cache.bytes).max();
        self.bands_beside(largest, load, prefer)
    }

    /// The same on a machine whose largest cache is known.
    fn bands_beside(&self, cache: Option<u64>, load: Load, prefer: Prefer) -> Vec<Band> {
        let of_memory = |cell: &&Cell| cell.source == MEMORY && cell.sink == MEMORY;
        let any = self.cells.iter().filter(of_memory).any(|cell| cell.load == load);
        let wanted = |cell: &&Cell| of_memory(cell) && (cell.load == load || !any);
        let mut cells: Vec<&Cell> = self.cells.iter().filter(wanted).collect();
        cells.sort_by_key(|cell| cell.size);
        let mut bands: Vec<Band> = Vec::new();
        for at_size in cells.chunk_by(|a, b| a.size == b.size) {
            let Some(libc) = at_size.iter().find(|cell| cell.mechanism == LIBC) else { continue };
            let before = bands.last().map(|band| band.kernel.clone());
            let best = best_of(at_size, libc, before.as_deref(), prefer);
            let ratio = *counted(best, prefer);
            match bands.last_mut().filter(|last| last.kernel == best.mechanism) {
                Some(last) => last.take_in(best, ratio),
                None => bands.push(Band {
                    upto: best.size,
                    extrapolated: false,
                    kernel: best.mechanism.clone(),
                    ratio,
                    sessions: best.sessions,
                    at: best.at.clone(),
                }),
            }
        }
        while bands.len() > tuned::MOST {
            give_up_least(&mut bands);
        }
        if let (Some(last), Some(cache)) = (bands.last_mut(), cache) {
            last.extrapolated = last.upto.saturating_mul(2) > cache;
        }
        bands
    }

    /// The same, ready for [`Bands::install`].
    pub fn kernels(&self, load: Load, prefer: Prefer) -> Result<Bands, BandsError> {
        let bands = self.kernel_bands(load, prefer);
        let mut rows = Vec::with_capacity(bands.len());
        for band in &bands {
            let row = by_name(&band.kernel);
            let row = row.ok_or_else(|| BandsError::Unknown(band.kernel.clone()))?;
            rows.push((usize::try_from(band.end()).unwrap_or(usize::MAX), row));
        }
        Bands::of(&rows).map_err(BandsError::Unfit)
    }
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

    fn take_in(&mut self, cell: &Cell, ratio: Ratio) {
        self.upto = cell.size;
        self.sessions = self.sessions.min(cell.sessions);
        self.at = self.at.clone().max(cell.at.clone());
        if ratio.ratio > self.ratio.ratio {
            self.ratio = ratio;
        }
    }
}

fn counted(cell: &Cell, prefer: Prefer) -> &Ratio {
    if prefer == Prefer::Cpu { &cell.cpu } else { &cell.wall }
}

/// The best of those that are surely faster than the C library; the kernel of the band before
/// where the best is not shown to be better than it, or where none is surely faster and it is not
/// slower; the C library if there is none.
fn best_of<'c>(
    at_size: &[&'c Cell],
    libc: &'c Cell,
    before: Option<&str>,
    prefer: Prefer,
) -> &'c Cell {
    let margin = |cell: &Cell| 1.0 + cell.noise.max(LEAST_NOISE);
    let ratio = |cell: &Cell| counted(cell, prefer).ratio;
    let faster: Vec<&Cell> = at_size
        .iter()
        .copied()
        .filter(|cell| cell.mechanism != LIBC)
        .filter(|cell| ratio(cell) * margin(cell) < 1.0 && counted(cell, prefer).hi < 1.0)
        .collect();
    let Some(best) = faster.iter().copied().min_by(|a, b| ratio(a).total_cmp(&ratio(b))) else {
        let same = at_size.iter().copied().find(|cell| before == Some(cell.mechanism.as_str()));
        return same.filter(|cell| ratio(cell) <= margin(cell)).unwrap_or(libc);
    };
    let same = faster.iter().copied().find(|cell| before == Some(cell.mechanism.as_str()));
    same.filter(|cell| ratio(cell) <= ratio(best) * margin(best)).unwrap_or(best)
}

/// Leaves the least gain to the C library, and joins what then lies side by side.
fn give_up_least(bands: &mut Vec<Band>) {
    let gains = |band: &Band| band.kernel != LIBC;
    let least = bands.iter_mut().filter(|band| gains(band));
    let Some(least) = least.max_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio)) else {
        bands.truncate(1);
        return;
    };
    (least.kernel, least.ratio) = (LIBC.to_owned(), Ratio::ONE);
    bands.dedup_by(|later, band| {
        let same = later.kernel == band.kernel;
        if same {
            band.upto = later.upto;
            band.sessions = band.sessions.min(later.sessions);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::{super::cell::tests::cell, *};

    fn at(kernel: &str, size: u64, ratio: f64) -> Cell {
        let (source, sink) = (MEMORY.to_owned(), MEMORY.to_owned());
        let wall = Ratio { ratio, lo: ratio * 0.98, hi: ratio * 1.02 };
        Cell { source, sink, wall, cpu: wall, ..cell(kernel, size, ratio) }
    }

    fn bands(cells: Vec<Cell>) -> Vec<(u64, String)> {
        let mut profile = Profile::new();
        profile.merge(cells);
        let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
        bands.into_iter().map(|band| (band.upto, band.kernel)).collect()
    }

    fn named(bands: &[(u64, &str)]) -> Vec<(u64, String)> {
        bands.iter().map(|(upto, kernel)| (*upto, (*kernel).to_owned())).collect()
    }

    #[test]
    fn a_kernel_within_the_noise_of_libc_is_libc() {
        let found = bands(vec![
            at(LIBC, 64, 1.0),
            at("simple", 64, 0.98),
            at(LIBC, 128, 1.0),
            at("simple", 128, 0.8),
            at(LIBC, 256, 1.0),
            at("simple", 256, 1.2),
        ]);
        assert_eq!(found, named(&[(64, LIBC), (128, "simple"), (256, LIBC)]));
        assert!(bands(vec![at("simple", 64, 0.5)]).is_empty(), "nothing to compare with");
    }

    #[test]
    fn a_band_goes_on_while_the_next_best_is_not_shown_to_be_better() {
        let found = bands(vec![
            at(LIBC, 64, 1.0),
            at("simple", 64, 0.7),
            at(LIBC, 128, 1.0),
            at("simple", 128, 0.71),
            at("inline", 128, 0.70),
            at(LIBC, 256, 1.0),
            at("simple", 256, 0.9),
            at("inline", 256, 0.5),
        ]);
        assert_eq!(found, named(&[(128, "simple"), (256, "inline")]));
    }

    #[test]
    fn a_band_goes_on_through_ties_with_libc_and_ends_where_it_loses() {
        let found = bands(vec![
            at(LIBC, 64, 1.0),
            at("simple", 64, 0.7),
            at(LIBC, 128, 1.0),
            at("simple", 128, 1.01),
            at(LIBC, 256, 1.0),
            at("simple", 256, 0.8),
            at(LIBC, 512, 1.0),
            at("simple", 512, 1.1),
            at(LIBC, 1024, 1.0),
            at("simple", 1024, 0.99),
        ]);
        assert_eq!(found, named(&[(256, "simple"), (1024, LIBC)]));
    }

    #[test]
    fn the_last_band_goes_on_if_it_was_measured_above_the_caches() {
        let mut profile = Profile::new();
        profile.merge(vec![at(LIBC, 1 << 20, 1.0), at("simple", 1 << 20, 0.5)]);
        let beyond = |cache| {
            let bands = profile.bands_beside(cache, Load::Idle, Prefer::Wall);
            let served = Band::of(&bands, u64::MAX).map(|band| band.kernel.clone());
            assert_eq!(bands[0].upto, 1 << 20, "what was measured stays as it is");
            served
        };
        assert_eq!(beyond(Some(1 << 20)).as_deref(), Some("simple"));
        assert_eq!(beyond(Some(2 << 20)), None, "the copies may have fitted the cache");
        assert_eq!(beyond(None), None, "nobody knows");
    }

    #[test]
    fn what_was_measured_becomes_what_copies() {
        let mut profile = Profile::new();
        let mut cells = Vec::new();
        let rows = thalweg_kernels::KERNELS.iter().filter(|row| (row.is_available)());
        let rows: Vec<&str> = rows
            .map(|row| row.name)
            .filter(|name| ![LIBC, tuned::COPY.name].contains(name))
            .collect();
        for n in 0..20_u32 {
            cells.push(at(LIBC, 64 << n, 1.0));
            let kernel = rows[n as usize % 2];
            cells.push(at(kernel, 64 << n, 0.5 + f64::from(n) / 100.0));
        }
        profile.merge(cells);
        let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
        assert!(bands.len() <= tuned::MOST && bands.is_sorted_by_key(|band| band.upto));
        assert_eq!(bands.last().map(|band| band.upto), Some(64 << 19));
        let ready = profile.kernels(Load::Idle, Prefer::Wall).unwrap();
        let mut sink = [0; 5];
        ready.copy(&mut sink, b"bytes");
        assert_eq!(&sink, b"bytes");
    }

    #[test]
    fn a_kernel_of_another_build_is_named_and_not_used() {
        let mut profile = Profile::new();
        profile.merge(vec![at(LIBC, 64, 1.0), at("of-the-future", 64, 0.1)]);
        let refusal = profile.kernels(Load::Idle, Prefer::Wall).unwrap_err();
        assert!(refusal.to_string().contains("of-the-future"));
    }
}
