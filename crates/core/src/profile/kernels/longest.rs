//! Which kernel begins a band, and how far it goes.

use super::{Band, LIBC, SHORT};
use crate::{
    Prefer,
    profile::{Cell, LEAST_NOISE, Ratio},
};

pub(super) fn counted(cell: &Cell, prefer: Prefer) -> &Ratio {
    if prefer == Prefer::Cpu { &cell.cpu } else { &cell.wall }
}

/// The kernels at one size, the C library's among them.
pub(super) struct AtSize<'c> {
    cells: &'c [&'c Cell],
    prefer: Prefer,
}

impl<'c> AtSize<'c> {
    /// `None` where nothing can be compared with.
    pub fn of(cells: &'c [&'c Cell], prefer: Prefer) -> Option<Self> {
        let own = Self { cells, prefer };
        own.cell(LIBC)?;
        Some(own)
    }

    pub fn bytes(&self) -> u64 {
        self.cells.first().map_or(0, |cell| cell.size)
    }

    fn cell(&self, kernel: &str) -> Option<&'c Cell> {
        self.cells.iter().copied().find(|cell| cell.mechanism == kernel)
    }

    fn ratio(&self, cell: &Cell) -> f64 {
        counted(cell, self.prefer).ratio
    }

    /// Those that are surely faster than the C library, and not shown to be slower than the best of
    /// them; the C library if there is none.
    fn may_begin(&self) -> Vec<&'c Cell> {
        let faster = self.cells.iter().copied().filter(|cell| {
            let surely = counted(cell, self.prefer).hi < 1.0;
            cell.mechanism != LIBC && surely && self.ratio(cell) * margin(cell) < 1.0
        });
        let mut faster: Vec<&Cell> = faster.collect();
        faster.sort_by(|a, b| self.ratio(a).total_cmp(&self.ratio(b)));
        let Some(best) = faster.first().copied() else {
            return self.cell(LIBC).into_iter().collect();
        };
        let limit = self.ratio(best) * margin(best);
        faster.retain(|cell| self.ratio(cell) <= limit);
        faster
    }

    /// The same, and who is as good as the C library where none is surely faster.
    fn may_go_on(&self, kernel: &str) -> Option<&'c Cell> {
        let best = self.may_begin();
        let same = best.iter().copied().find(|cell| cell.mechanism == kernel);
        let nobody = best.iter().all(|cell| cell.mechanism == LIBC);
        same.or_else(|| if nobody { self.as_good(kernel) } else { None })
    }

    /// This kernel, unless it is slower than the C library by more than the noise.
    fn as_good(&self, kernel: &str) -> Option<&'c Cell> {
        self.cell(kernel).filter(|cell| self.ratio(cell) <= margin(cell))
    }
}

/// The middle of two sizes by their logarithms, to a sixteenth of its octave: nobody knows it better.
pub(super) fn halfway(lower: u64, upper: u64) -> u64 {
    let middle = ((lower as f64).sqrt() * (upper as f64).sqrt()) as u64;
    let sixteenth = (1 << middle.max(1).ilog2()) / 16;
    (middle - middle % sixteenth.max(1)).max(lower)
}

fn margin(cell: &Cell) -> f64 {
    1.0 + cell.noise.max(LEAST_NOISE)
}

/// The longest band that may begin at the first of these sizes, the best there of several as long; and
/// the sizes behind it.
///
/// What was measured at the largest short size is the kernel as the only one for all below, so that is
/// where it is chosen: another one in between would be a branch that nobody can predict. It must not be
/// slower than the C library at any of them; if all are, sizes are taken one by one.
pub(super) fn longest<'s, 'c>(
    sizes: &'s [AtSize<'c>],
    prefer: Prefer,
) -> Option<(Band, &'s [AtSize<'c>])> {
    let short = sizes.iter().take_while(|size| size.bytes() <= SHORT).count();
    let best = from(sizes, short.saturating_sub(1)).or_else(|| from(sizes, 0))?;
    let (first, later) = best.split_first()?;
    let mut band = Band::at(first, prefer);
    for cell in later {
        band.take_in(Band::at(cell, prefer));
    }
    Some((band, &sizes[best.len()..]))
}

/// The cells of that band, if it is chosen at the size with this number.
fn from<'c>(sizes: &[AtSize<'c>], chosen: usize) -> Option<Vec<&'c Cell>> {
    let mut best: Option<Vec<&Cell>> = None;
    for cell in sizes.get(chosen)?.may_begin() {
        let kernel = &cell.mechanism;
        let smaller = sizes[..chosen].iter().map_while(|size| size.as_good(kernel));
        let mut cells: Vec<&Cell> = smaller.collect();
        if cells.len() == chosen {
            cells.extend(sizes[chosen..].iter().map_while(|size| size.may_go_on(kernel)));
            if best.as_ref().is_none_or(|best| cells.len() > best.len()) {
                best = Some(cells);
            }
        }
    }
    best
}

/// Leaves the least gain to the C library, and joins what then lies side by side.
pub(super) fn give_up_least(bands: &mut Vec<Band>) {
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
