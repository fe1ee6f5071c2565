//! One operation: a kernel from the tables on one source and one sink, and the immediate use of its result.

use serde::Deserialize;
use thalweg_core::{Prefer, Profile, bands::Band, profile::Load};
use thalweg_kernels::{
    CHECKSUMS, FILLS, HASHES, KERNELS, Ready, ReadyChecksum, ReadyFill, ReadyHash, by_name, crc32c,
    set_prefetch_distance, tuned, xxh3,
};

/// The operation that an arm (a compared variant) repeats: a copy and the use of its result, a fill, or a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyUsage {
    /// A copy without further use, as in a micro-benchmark.
    #[default]
    Copy,
    /// A copy, followed by the CRC32C of the result.
    CopyThenChecksum,
    /// A copy that computes the CRC32C at the same time, with a kernel from the table of checksums.
    FusedChecksum,
    /// A copy, followed by the XXH3 of the result.
    CopyThenXxh3,
    /// A copy that computes the XXH3 at the same time, with a kernel from the table of hashes.
    FusedXxh3,
    /// A copy, followed by reading every byte.
    ReadAfter,
    /// Writes a word into the source, copies, reads the word from the sink, and writes it into the next source.
    Reload,
    /// Packets in a ring: each copy is preceded by a header, and both are read several packets later.
    Ring,
    /// Fills the sink with a byte, with a kernel from the table of fills.
    Fill,
    /// Reads the source with vectors and writes nothing: a lower limit for copies.
    Read,
}

/// An operation that can be repeated.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    row: KernelRow,
    after: AfterCopy,
    /// The value that the last reload read.
    word: u64,
    /// The prefetch distance, if the kernel has one.
    prefetch: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum KernelRow {
    Copy(Ready),
    /// Selects the kernel by size, as for user programs.
    Tuned,
    Fused(ReadyChecksum),
    Hashed(ReadyHash),
    Fill(ReadyFill),
    /// Selects the kernel by size, as for user programs.
    TunedFill,
    Read,
}

#[derive(Clone, Copy, Debug)]
enum AfterCopy {
    Nothing,
    Checksum,
    Xxh3,
    Read,
    Reload,
}

/// The kernel with a configurable prefetch distance.
const PREFETCHES: &str = "stream";

/// The value that a fill writes to every byte of its sink.
const FILLED: u8 = 0x5a;

impl Operation {
    /// Returns the operation for this use and kernel; the error lists the known names.
    pub fn of(usage: CopyUsage, kernel: Option<&str>) -> Result<Self, String> {
        let row = match (usage, kernel) {
            (CopyUsage::Read, None) => KernelRow::Read,
            (CopyUsage::Read, Some(_)) => {
                return Err("use = \"read\" must not have a kernel".to_owned());
            }
            (_, None) => return Err("a kernel is required".to_owned()),
            (CopyUsage::Fill, Some(name)) => match fill(name)? {
                tuned if tuned.row().name == tuned::NAME => KernelRow::TunedFill,
                row => KernelRow::Fill(row),
            },
            (CopyUsage::FusedChecksum, Some(name)) => KernelRow::Fused(checksum(name)?),
            (CopyUsage::FusedXxh3, Some(name)) => KernelRow::Hashed(hash(name)?),
            (_, Some(name)) => match copier(name)? {
                tuned if tuned.kernel().name == tuned::NAME => KernelRow::Tuned,
                kernel => KernelRow::Copy(kernel),
            },
        };
        let after = match usage {
            CopyUsage::CopyThenChecksum => AfterCopy::Checksum,
            CopyUsage::CopyThenXxh3 => AfterCopy::Xxh3,
            CopyUsage::ReadAfter => AfterCopy::Read,
            CopyUsage::Reload => AfterCopy::Reload,
            _ => AfterCopy::Nothing,
        };
        let copies = matches!(row, KernelRow::Copy(kernel) if kernel.kernel().name == PREFETCHES);
        Ok(Self { row, after, word: 1, prefetch: copies.then_some(0) })
    }

    /// Returns the operation with this prefetch distance in bytes. Only one kernel supports it.
    pub fn with_prefetch(self, bytes: usize) -> Result<Self, String> {
        match self.prefetch {
            Some(_) => Ok(Self { prefetch: Some(bytes), ..self }),
            None => {
                Err(format!("prefetch is allowed only for copies with the kernels {PREFETCHES:?}"))
            }
        }
    }

    /// Performs the operation. The result depends on the bytes that were read.
    #[inline]
    pub fn once(&mut self, sink: &mut [u8], source: &mut [u8]) -> u64 {
        if matches!(self.after, AfterCopy::Reload) {
            put_word(source, self.word);
        }
        // The prefetch distance is a setting of the whole process, and another arm may have changed it.
        if let Some(bytes) = self.prefetch {
            set_prefetch_distance(bytes);
        }
        match self.row {
            KernelRow::Copy(kernel) => kernel.copy(sink, source),
            KernelRow::Tuned => thalweg_kernels::copy(sink, source),
            KernelRow::Fused(row) => return u64::from(row.copy(sink, source, 0)),
            KernelRow::Hashed(row) => return row.copy(sink, source),
            KernelRow::Fill(row) => row.fill(sink, FILLED),
            KernelRow::TunedFill => thalweg_kernels::fill(sink, FILLED),
            KernelRow::Read => return sum_of(source),
        }
        match self.after {
            // Nothing reads the sink here. The usage `reload` measures a load right after the copy.
            AfterCopy::Nothing => 0,
            AfterCopy::Checksum => u64::from(crc32c(sink, 0)),
            AfterCopy::Xxh3 => xxh3(sink),
            AfterCopy::Read => sum_of(sink),
            AfterCopy::Reload => {
                self.word = word_of(sink).wrapping_add(1);
                self.word
            }
        }
    }

    /// Checks that the sink has the right content after the operation returned `answer`.
    pub fn look(&self, sink: &[u8], source: &[u8], answer: u64) -> Result<(), String> {
        let name = self.name();
        let right = match self.row {
            KernelRow::Copy(_) | KernelRow::Tuned | KernelRow::Fused(_) | KernelRow::Hashed(_) => {
                sink == source
            }
            KernelRow::Fill(_) | KernelRow::TunedFill => sink.iter().all(|byte| *byte == FILLED),
            KernelRow::Read => true,
        };
        if !right {
            return Err(format!("memory kernel {name}: wrong bytes in the destination"));
        }
        let sum = match (self.row, self.after) {
            (KernelRow::Fused(_), _) | (_, AfterCopy::Checksum) => {
                Some(u64::from(crc32c(source, 0)))
            }
            (KernelRow::Hashed(_), _) | (_, AfterCopy::Xxh3) => Some(xxh3(source)),
            (KernelRow::Read, _) | (_, AfterCopy::Read) => Some(sum_of(source)),
            _ => None,
        };
        match sum {
            Some(sum) if sum != answer => {
                Err(format!("kernel {name}: the checksum differs from that of the source"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &'static str {
        match self.row {
            KernelRow::Copy(kernel) => kernel.kernel().name,
            KernelRow::Tuned | KernelRow::TunedFill => tuned::NAME,
            KernelRow::Fused(row) => row.row().name,
            KernelRow::Hashed(row) => row.row().name,
            KernelRow::Fill(row) => row.row().name,
            KernelRow::Read => "read",
        }
    }
}

/// Returns the copy kernel with this name, if this CPU can run it. For `tuned`, installs the size bands of this
/// machine's profile first. A kernel that is resolved after that uses the bands without an extra jump.
pub fn copier(name: &str) -> Result<Ready, String> {
    let kernel =
        by_name(name).ok_or_else(|| none("kernel", name, KERNELS.iter().map(|k| k.name)))?;
    if kernel.name == tuned::NAME {
        install_measured("copies", Profile::kernel_bands)?;
    }
    kernel.ready().ok_or_else(|| cannot_run(name))
}

fn fill(name: &str) -> Result<ReadyFill, String> {
    let row = FILLS.iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| none("fill kernel", name, FILLS.iter().map(|f| f.name)))?;
    if row.name == tuned::NAME {
        install_measured("fills", Profile::fill_bands)?;
    }
    row.ready().ok_or_else(|| cannot_run(name))
}

fn checksum(name: &str) -> Result<ReadyChecksum, String> {
    if name == "widest" {
        let row = CHECKSUMS.iter().find_map(thalweg_kernels::Checksum::ready);
        return row.ok_or_else(|| cannot_run(name));
    }
    let row = CHECKSUMS.iter().find(|row| row.name == name);
    let all = CHECKSUMS.iter().map(|row| row.name).chain(["widest"]);
    row.ok_or_else(|| none("checksum kernel", name, all))?.ready().ok_or_else(|| cannot_run(name))
}

fn hash(name: &str) -> Result<ReadyHash, String> {
    if name == "widest" {
        let row = HASHES.iter().find_map(thalweg_kernels::Hash::ready);
        return row.ok_or_else(|| cannot_run(name));
    }
    let row = HASHES.iter().find(|row| row.name == name);
    let all = HASHES.iter().map(|row| row.name).chain(["widest"]);
    row.ok_or_else(|| none("XXH3 kernel", name, all))?.ready().ok_or_else(|| cannot_run(name))
}

fn none<'n>(what: &str, name: &str, all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    format!("unknown {what} {name:?}; known on this architecture: {}", all.join(", "))
}

fn cannot_run(name: &str) -> String {
    format!("this processor cannot run the kernel {name}")
}

/// Installs the size bands of this machine's profile for `tuned` in this process. Returns an error if the profile has
/// no results for this work.
fn install_measured(
    work: &str,
    bands: fn(&Profile, Load, Prefer) -> Vec<Band>,
) -> Result<(), String> {
    let nothing = || {
        format!(
            "no {work} in memory were measured on this machine; run `thalweg tune --pair memory:memory`"
        )
    };
    let path = Profile::default_path().ok_or_else(nothing)?;
    let profile = Profile::load(&path).map_err(|e| e.to_string())?.ok_or_else(nothing)?;
    if let Some(stale) = profile.stale_in_memory().first() {
        return Err(format!(
            "the profile is stale: {stale}; run `thalweg tune --pair memory:memory`"
        ));
    }
    if bands(&profile, Load::Idle, Prefer::Wall).is_empty() {
        return Err(nothing());
    }
    let bands = profile.kernels(Load::Idle, Prefer::Wall).map_err(|e| e.to_string())?;
    match bands.install() {
        // `Installed`: an earlier arm of this process has installed the bands of the same profile.
        Ok(()) | Err(tuned::Unfit::Installed) => Ok(()),
        Err(unfit) => Err(unfit.to_string()),
    }
}

/// Returns the sum of all words. A wrapping sum does not depend on the order, so the compiler can vectorize it.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest =
        words.remainder().iter().fold(0, |sum: u64, byte| sum.wrapping_add(u64::from(*byte)));
    words.fold(rest, |sum, word| {
        let word = word.try_into().map_or(0, u64::from_ne_bytes);
        sum.wrapping_add(word)
    })
}

/// Returns the first word, or the first byte if there are fewer than eight.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_ne_bytes(*word),
        None => bytes.first().copied().map_or(0, u64::from),
    }
}

#[inline]
fn put_word(bytes: &mut [u8], word: u64) {
    if let Some(first) = bytes.first_chunk_mut() {
        *first = word.to_ne_bytes();
    } else if let Some(first) = bytes.first_mut() {
        *first = word as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_words_are_those_of_the_bytes() {
        let bytes: Vec<u8> = (1..=19).collect();
        let word = |from: usize| u64::from_ne_bytes(bytes[from..from + 8].try_into().unwrap());
        assert_eq!(sum_of(&bytes), word(0).wrapping_add(word(8)).wrapping_add(17 + 18 + 19));
        assert_eq!((sum_of(&[]), word_of(&[]), word_of(&bytes)), (0, 0, word(0)));
        let mut short = [9, 9];
        put_word(&mut short, 0x0107);
        assert_eq!((short, word_of(&short)), ([7, 9], 7));
    }

    #[test]
    fn a_wrong_sink_or_sum_is_seen() {
        for (usage, kernel, sums) in [
            (CopyUsage::Copy, Some("libc"), false),
            (CopyUsage::CopyThenChecksum, Some("libc"), true),
            (CopyUsage::FusedChecksum, Some("widest"), true),
            (CopyUsage::CopyThenXxh3, Some("libc"), true),
            (CopyUsage::FusedXxh3, Some("widest"), true),
            (CopyUsage::ReadAfter, Some("libc"), true),
            (CopyUsage::Reload, Some("libc"), false),
            (CopyUsage::Fill, Some("libc"), false),
            (CopyUsage::Read, None, true),
        ] {
            let mut operation = Operation::of(usage, kernel).unwrap();
            let (mut source, mut sink) = ([3; 100], [0; 100]);
            let answer = operation.once(&mut sink, &mut source);
            operation.look(&sink, &source, answer).unwrap();
            assert_eq!(operation.look(&sink, &source, answer + 1).is_err(), sums, "{usage:?}");
            sink[50] ^= 1;
            let seen = operation.look(&sink, &source, answer).is_err();
            assert_eq!(seen, usage != CopyUsage::Read, "{usage:?}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_copy_that_prefetches_has_its_own_distance() {
        let plain = Operation::of(CopyUsage::Copy, Some(PREFETCHES)).unwrap();
        let far = plain.with_prefetch(640).unwrap();
        let (mut source, mut sink) = ([3; 100], [0; 100]);
        for (mut operation, bytes) in [(far, 640), (plain, 0), (far, 640)] {
            operation.once(&mut sink, &mut source);
            assert_eq!(thalweg_kernels::prefetch_distance(), bytes);
        }
        let other = Operation::of(CopyUsage::Copy, Some("libc")).unwrap();
        assert!(other.with_prefetch(64).unwrap_err().contains(PREFETCHES));
    }

    #[test]
    fn a_reload_carries_its_word_through_the_copy() {
        let mut operation = Operation::of(CopyUsage::Reload, Some("libc")).unwrap();
        let (mut source, mut sink) = ([0; 64], [0; 64]);
        for n in 1..5_u64 {
            assert_eq!(operation.once(&mut sink, &mut source), n + 1);
            assert_eq!(word_of(&sink), n);
        }
    }
}
