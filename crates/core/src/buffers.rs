//! Buffer sizes: chosen for the processor's cache, and no larger than the transfer.

use thalweg_sys::host::second_cache;

use crate::{Kind, Source, Transfer, length_guard::length};

/// The number of bytes in a transfer, as far as it is known in advance.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The requested limit, in bytes.
    limit: Option<u64>,
    /// The size that the source reports, in bytes. It may be wrong: files may grow, and /proc
    /// reports 0.
    told: Option<u64>,
}

impl Amount {
    /// Returns the amount of a transfer. The size of the source is known if the source is a file.
    pub fn of(transfer: &Transfer<'_>) -> Self {
        let told = match &transfer.source {
            Source::Fd(end) if end.kind == Kind::File => {
                length(end).ok().map(|len| len.saturating_sub(end.at.unwrap_or(0)))
            }
            _ => None,
        };
        Self { limit: transfer.limit(), told }
    }

    /// Returns the size of a buffer: `wished` bytes, or fewer if the transfer is smaller. A
    /// reported size may be wrong, so it never reduces the buffer below `least`.
    pub fn fits(self, wished: usize, least: usize) -> usize {
        wished.min(usize::try_from(self.expected(least)).unwrap_or(usize::MAX)).max(1)
    }

    /// Returns the number of buffers of `size` bytes that the transfer fills. A reported size
    /// counts as at least `least`.
    pub fn pieces(self, size: usize, least: usize) -> u64 {
        self.expected(least).div_ceil(size as u64).max(1)
    }

    fn expected(self, least: usize) -> u64 {
        let told = self.told.map(|told| told.max(least as u64));
        self.limit.into_iter().chain(told).min().unwrap_or(u64::MAX)
    }
}

/// Returns the sizes of a buffer that the processor copies through, the default first. The default
/// is the size that fits the cache, or the first of `listed` if the cache size is unknown.
pub fn sizes(listed: &[u64]) -> &'static [u64] {
    let mut sizes = listed.to_vec();
    if let Some(cache) = second_cache() {
        let first = fitting(listed, cache);
        sizes[..=first].rotate_right(1);
    }
    Box::leak(sizes.into_boxed_slice())
}

/// Returns the index of the largest size that fits the cache. The buffer takes at most a quarter of
/// the cache. A quarter each is left for the pages of the source, for the pages of the sink, and for
/// other data.
fn fitting(sizes: &[u64], cache: u64) -> usize {
    const SHARES: u64 = 4;
    let all = || sizes.iter().enumerate();
    let fit = all().filter(|(_, size)| **size <= cache / SHARES).max_by_key(|(_, size)| **size);
    fit.or_else(|| all().min_by_key(|(_, size)| **size)).map_or(0, |(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const K: usize = 1 << 10;

    fn amount(file: &File, at: u64, len: Option<u64>) -> Amount {
        let sink = File::options().write(true).open("/dev/null").unwrap();
        let mut transfer = Transfer::between(file, &sink).unwrap();
        if let Source::Fd(end) = &mut transfer.source {
            *end = end.at(at);
        }
        transfer.len = len;
        Amount::of(&transfer)
    }

    #[test]
    fn a_buffer_is_no_larger_than_the_job_and_an_announced_size_may_be_wrong() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(300 << 10).unwrap();
        let fits = |at, len| amount(&file, at, len).fits(256 * K, 64 * K);
        assert_eq!(fits(0, None), 256 * K);
        assert_eq!(fits(200 << 10, None), 100 * K);
        assert_eq!(fits(299 << 10, None), 64 * K);
        assert_eq!(fits(0, Some(5)), 5);
        assert_eq!(fits(0, Some(0)), 1);
        let proc = File::open("/proc/self/status").unwrap();
        assert_eq!(amount(&proc, 0, None).fits(256 * K, 64 * K), 64 * K);
    }

    #[test]
    fn there_are_no_more_buffers_than_the_job_fills() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(300 << 10).unwrap();
        assert_eq!(amount(&file, 0, None).pieces(256 * K, 64 * K), 2);
        assert_eq!(amount(&file, 0, Some(0)).pieces(64 * K, 64 * K), 1);
        assert_eq!(amount(&file, 300 << 10, None).pieces(64 * K, 64 * K), 1);
        let device = File::open("/dev/zero").unwrap();
        assert_eq!(amount(&device, 0, None).fits(256 * K, 64 * K), 256 * K);
        assert!(amount(&device, 0, None).pieces(256 * K, 64 * K) > 16);
    }

    #[test]
    fn the_default_is_the_largest_of_which_four_fit_the_cache() {
        let sizes = [256 << 10, 64 << 10, 128 << 10, 1 << 20];
        let fit = |cache| sizes[fitting(&sizes, cache)];
        assert_eq!(fit(512 << 10), 128 << 10);
        assert_eq!(fit((1 << 20) + 4096), 256 << 10);
        assert_eq!(fit(64 << 20), 1 << 20);
        assert_eq!(fit(1), 64 << 10);
    }

    #[test]
    fn the_other_sizes_keep_their_order() {
        let listed = [3, 1, 2, 4];
        let mut found = sizes(&listed).to_vec();
        assert_eq!(found.len(), 4);
        let first = found.remove(0);
        assert_eq!(found, listed.into_iter().filter(|size| *size != first).collect::<Vec<_>>());
    }
}
