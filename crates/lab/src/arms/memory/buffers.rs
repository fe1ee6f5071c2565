//! The two buffers of an arm (sources and sinks), and the check that a kernel wrote only to its sink.

use std::ops::Range;
use thalweg_sys::{Errno, map::Map};

use super::SinkPosition;
use thalweg_measure::arms::content::ByteContent;

/// The value of every byte in a sink and around it before a copy is verified.
pub const SPOILT: u8 = 0xee;

/// The buffers; `None` until they are allocated.
#[derive(Default)]
pub struct Buffers(Option<(Map, Map)>);

impl Buffers {
    /// Allocates and touches `sources` and `sinks` bytes. With `PageEdge`, both buffers end where an
    /// inaccessible page begins.
    pub fn made(kind: SinkPosition, sources: usize, sinks: usize) -> Result<Self, String> {
        let make: fn(usize) -> Result<Map, Errno> = if kind == SinkPosition::PageEdge {
            Map::fenced
        } else {
            |len| Map::anonymous(len, false)
        };
        let made = |len| make(len).map_err(|e| format!("mmap: {e}"));
        let (mut from, mut to) = (made(sources)?, made(sinks)?);
        ByteContent::Pattern.fill(0, from.bytes_mut().unwrap_or_default());
        to.bytes_mut().unwrap_or_default().fill(1);
        Ok(Self(Some((from, to))))
    }

    /// Returns the pages of the sinks to the kernel.
    pub fn forget_sinks(&mut self) -> Result<(), String> {
        let forgotten = self.0.as_mut().map_or(Ok(()), |(_, sinks)| sinks.forget());
        forgotten.map_err(|e| format!("madvise: {e}"))
    }

    fn bytes_mut(&mut self) -> Option<(&mut [u8], &mut [u8])> {
        let (sources, sinks) = self.0.as_mut()?;
        sources.bytes_mut().zip(sinks.bytes_mut())
    }
}

/// An arm with its own two buffers.
pub trait HasBuffers: Sized {
    fn buffers(&mut self) -> &mut Buffers;

    /// Calls `act` with the sources and the sinks; returns `None` if they are not allocated.
    fn with_memory<T>(
        &mut self,
        act: impl FnOnce(&mut Self, &mut [u8], &mut [u8]) -> T,
    ) -> Option<T> {
        let mut buffers = std::mem::take(self.buffers());
        let done = buffers.bytes_mut().map(|(sources, sinks)| act(self, sources, sinks));
        *self.buffers() = buffers;
        done
    }

    /// Like `with_memory`, but missing buffers are an error.
    fn verified(
        &mut self,
        act: impl FnOnce(&mut Self, &mut [u8], &mut [u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.with_memory(act).unwrap_or_else(|| Err("its buffers are not allocated yet".to_owned()))
    }
}

/// Checks that a kernel wrote only to its sink: the other bytes of `around` must still be [`SPOILT`].
pub fn kept_to(
    kernel: &str,
    sinks: &[u8],
    around: &Range<usize>,
    sink: &Range<usize>,
) -> Result<(), String> {
    let (before, after) = (&sinks[around.start..sink.start], &sinks[sink.end..around.end]);
    if before.iter().chain(after).any(|byte| *byte != SPOILT) {
        return Err(format!("kernel {kernel}: bytes outside the sink were written"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Own(Buffers);

    impl HasBuffers for Own {
        fn buffers(&mut self) -> &mut Buffers {
            &mut self.0
        }
    }

    #[test]
    fn memory_is_there_once_it_was_made_and_stays() {
        let mut own = Own(Buffers::default());
        assert_eq!(own.with_memory(|_, _, _| ()), None);
        assert!(own.verified(|_, _, _| Ok(())).unwrap_err().contains("not allocated yet"));
        own.0 = Buffers::made(SinkPosition::Line, 100, 200).unwrap();
        for _ in 0..2 {
            let lengths = own.with_memory(|_, sources, sinks| (sources.len(), sinks.len()));
            assert_eq!(lengths, Some((100, 200)));
        }
        own.0.forget_sinks().unwrap();
        assert_eq!(own.with_memory(|_, _, sinks| sinks[0]), Some(0));
    }

    #[test]
    fn a_byte_on_either_side_of_a_sink_is_seen() {
        let mut sinks = [SPOILT; 20];
        let kept = |sinks: &[u8]| kept_to("it", sinks, &(2..18), &(5..10));
        sinks[5..10].fill(0);
        (sinks[1], sinks[18]) = (0, 0);
        assert_eq!(kept(&sinks), Ok(()));
        for at in [2, 4, 10, 17] {
            sinks[at] = 0;
            assert!(kept(&sinks).unwrap_err().contains("it: bytes outside"), "{at}");
            sinks[at] = SPOILT;
        }
    }
}
