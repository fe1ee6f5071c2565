//! Memory: kernels that copy or fill between two buffers. Kernels that combine others, such as `tuned`, do not take
//! part. The C library's function is the reference.

use std::{cell::RefCell, io};
use thalweg_core::{
    Knob, Prefer, Profile, Unfit,
    bands::Band,
    profile::{COLD, Cell, FILL, LIBC, Load, REPEATED, SHORT},
};
use thalweg_kernels as list;
use thalweg_sys::host::{caches, memory_available};

use super::{
    super::{
        grid::Depth,
        job::{ContestJob, EndKeys, SurveyLine, TunedMethod, WantedMethods},
        pair::{EndKind, EndPair},
        table::AskedMethod,
    },
    Arena, OpenedContest, PairContest, TriedArm, octaves,
};
use crate::{
    StopCheck,
    arms::random_copies::{CopyBuffers, OnBuffers, TimedKernel},
    schedule::{Arm, SampleFailure, SampledArm},
};

/// The kernels of one list, measured in one state of memory.
pub(super) struct Kernels {
    ends: EndPair,
    keys: [&'static str; 2],
    place: MemoryState,
    list: &'static KernelList,
}

/// The state of memory, and the lengths of copies or fills.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryState {
    /// Cached as far as the size fits; short operations have random lengths.
    Hot,
    /// One fixed length, aligned to cache lines.
    Repeated,
    /// Not in any cache.
    Cold,
}

struct KernelList {
    /// Returns all kernels that do not combine others.
    single: fn() -> Vec<&'static str>,
    /// Returns the kernel with this name, if this CPU can run it.
    ready: fn(&str) -> Option<TimedKernel>,
    /// Returns the bands of `tuned`, which apply to all states of memory.
    bands: fn(&Profile, Load, Prefer) -> Vec<Band>,
}

pub(super) static COPIES: Kernels = Kernels {
    ends: EndPair { source: EndKind::Memory, sink: EndKind::Memory },
    keys: ["memory", "memory"],
    place: MemoryState::Hot,
    list: &COPYING,
};

pub(super) static COLD_COPIES: Kernels = Kernels {
    ends: EndPair { source: EndKind::Memory, sink: EndKind::Cold },
    keys: ["memory", COLD],
    place: MemoryState::Cold,
    list: &COPYING,
};

pub(super) static REPEATED_COPIES: Kernels = Kernels {
    ends: EndPair { source: EndKind::Memory, sink: EndKind::Repeated },
    keys: ["memory", REPEATED],
    place: MemoryState::Repeated,
    list: &COPYING,
};

pub(super) static FILLS: Kernels = Kernels {
    ends: EndPair { source: EndKind::Fill, sink: EndKind::Memory },
    keys: [FILL, "memory"],
    place: MemoryState::Hot,
    list: &FILLING,
};

pub(super) static REPEATED_FILLS: Kernels = Kernels {
    ends: EndPair { source: EndKind::Fill, sink: EndKind::Repeated },
    keys: [FILL, REPEATED],
    place: MemoryState::Repeated,
    list: &FILLING,
};

static COPYING: KernelList = KernelList {
    single: || list::KERNELS.iter().map(|row| row.name).filter(|name| !is_tuned(name)).collect(),
    ready: |name| list::by_name(name).and_then(list::Kernel::ready).map(TimedKernel::Copy),
    bands: Profile::kernel_bands,
};

static FILLING: KernelList = KernelList {
    single: || list::FILLS.iter().map(|row| row.name).filter(|name| !is_tuned(name)).collect(),
    ready: |name| {
        let row = list::FILLS.iter().find(|row| row.name == name);
        row.and_then(list::Fill::ready).map(TimedKernel::Fill)
    },
    bands: Profile::fill_bands,
};

fn is_tuned(name: &str) -> bool {
    name == list::tuned::NAME
}

impl PairContest for Kernels {
    fn takes(&self, ends: &EndPair) -> bool {
        *ends == self.ends
    }

    fn takes_keys(&self, keys: &EndKeys) -> bool {
        [&*keys.source, &*keys.sink] == self.keys
    }

    fn keys(&self, _ends: &EndPair) -> Result<EndKeys, String> {
        let [source, sink] = self.keys.map(str::to_owned);
        Ok(EndKeys { source, sink, options: Default::default() })
    }

    /// Begins at a few bytes, because most calls are short. Steps of two octaves are enough for bands, except near
    /// cache sizes, where kernels differ most.
    fn sizes(&self, depth: Depth) -> Vec<u64> {
        match (self.place, depth) {
            // Ends at 1 MiB, because larger hot copies are mostly uncached too.
            (MemoryState::Cold, _) => return octaves(4, 20, 2),
            // Begins below 16 bytes: there a branch-free kernel is better for mixed sizes and worse for repeated copies
            // of 8 bytes.
            (MemoryState::Repeated, Depth::Quick) => return octaves(2, SHORT.ilog2(), 1),
            (MemoryState::Repeated, Depth::Standard) => return half_octaves(2, SHORT.ilog2()),
            (MemoryState::Hot, Depth::Quick) => return octaves(4, 26, 2),
            (MemoryState::Hot, Depth::Standard) => {}
        }
        let mut sizes = octaves(4, 28, 2);
        let cache = caches().iter().map(|cache| cache.bytes).max();
        let leaving = cache.into_iter().flat_map(leaving);
        sizes.extend(leaving.filter(|size| (1 << 4..1 << 28).contains(size)));
        sizes
    }

    /// Repeated copies are measured only on an idle machine. Their results are used under every load.
    fn counts_under(&self, load: Load) -> bool {
        self.place != MemoryState::Repeated || load == Load::Idle
    }

    fn has_knobs(&self) -> bool {
        false
    }

    fn knobs(&self, _name: &str) -> &'static [Knob] {
        &[]
    }

    fn is_reference(&self, name: &str) -> bool {
        name == LIBC
    }

    /// Returns no cells, because all kernels take part at their defaults anyway.
    fn known<'p>(&self, _: &'p Profile, _: &EndPair) -> Result<Vec<&'p Cell>, String> {
        Ok(Vec::new())
    }

    fn choice(
        &self,
        profile: &Profile,
        _keys: &EndKeys,
        asked: &AskedMethod,
    ) -> Option<TunedMethod> {
        let bands = (self.list.bands)(profile, asked.load, asked.prefer);
        let band = Band::of(&bands, asked.size);
        Some(TunedMethod::plain(band.map_or(LIBC, |band| &band.kernel)))
    }

    fn without_profile(&self, _keys: &EndKeys, _asked: &AskedMethod) -> Vec<&'static str> {
        vec![LIBC]
    }

    fn open<'s>(
        &self,
        job: &ContestJob,
        _stop: &'s StopCheck<'s>,
        answer: &mut dyn FnMut(SurveyLine),
    ) -> Result<OpenedContest<'s>, SampleFailure> {
        answer(SurveyLine::Ends(self.keys(&job.ends)?));
        let buffers = match self.place {
            MemoryState::Hot => CopyBuffers::new(job.exact),
            MemoryState::Repeated => CopyBuffers::repeated(),
            MemoryState::Cold => CopyBuffers::cold(job.exact),
        };
        let buffers = RefCell::new(buffers);
        Ok((Box::new(InMemory { buffers, ready: self.list.ready }), self.ways(job, answer)))
    }
}

impl Kernels {
    fn ways(&self, job: &ContestJob, answer: &mut dyn FnMut(SurveyLine)) -> Vec<TunedMethod> {
        let mut ways = Vec::new();
        for name in (self.list.single)() {
            let way = TunedMethod::plain(name);
            let is_wanted = match &job.ways {
                WantedMethods::Only(ways) => self.is_reference(name) || ways.contains(&way),
                WantedMethods::All | WantedMethods::These(_) => true,
            };
            if (self.list.ready)(name).is_none() {
                let reason = "this CPU does not have the instructions of this kernel".to_owned();
                answer(SurveyLine::Unfit { way, reason });
            } else if is_wanted {
                ways.push(way);
            }
        }
        ways.sort_by_key(|way| !self.is_reference(&way.name));
        ways
    }
}

/// Returns the powers of two between two exponents, and the sizes halfway between them. Kernels take other branches at
/// these additional sizes.
fn half_octaves(least: u32, most: u32) -> Vec<u64> {
    let halves = (least..most).map(|power| (1 << power) + (1 << (power - 1)));
    octaves(least, most, 1).into_iter().chain(halves).collect()
}

/// Returns the sizes around the end of a cache: from an eighth of it to twice its size, in half octaves.
fn leaving(cache: u64) -> impl Iterator<Item = u64> {
    (-6..=2).map(move |halves| (cache as f64 * (f64::from(halves) / 2.0).exp2()) as u64)
}

struct InMemory {
    buffers: RefCell<CopyBuffers>,
    ready: fn(&str) -> Option<TimedKernel>,
}

impl Arena for InMemory {
    fn resize(&mut self, size: u64) -> io::Result<()> {
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.buffers.get_mut().resize(len);
        Ok(())
    }

    fn has_room(&self, size: u64, _ways: usize) -> bool {
        memory_available().is_none_or(|available| size.saturating_mul(2) <= available)
    }

    fn try_out<'p>(&'p self, way: &TunedMethod) -> TriedArm<'p> {
        let kernel = (self.ready)(&way.name);
        let kernel =
            kernel.ok_or_else(|| Unfit::because(format!("{way} is not available here")))?;
        let mut arm = OnBuffers { buffers: &self.buffers, kernel };
        arm.check()?;
        Ok((SampledArm::once(arm), Some(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_closer_where_a_copy_leaves_the_cache() {
        let sizes: Vec<u64> = leaving(32 << 20).collect();
        assert_eq!((sizes[0], sizes[6], sizes[8]), (4 << 20, 32 << 20, 64 << 20));
        assert!(sizes.windows(2).all(|two| two[0] < two[1] && two[1] < two[0] * 3 / 2));
    }
}
