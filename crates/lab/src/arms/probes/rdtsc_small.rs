//! Reads the time-stamp counter around each small copy, and compares the sum with the time of all copies together. If
//! they differ, such readings do not show the cost of a small copy.

use serde::Deserialize;
use std::hint::black_box;
use thalweg_core::Unfit;
use thalweg_kernels::Ready;
use thalweg_sys::host::cycle_counter;

use crate::arms::{ArmJob, Probe, ProbeFinding, ProbeSpec, memory::copier, parameters};
use thalweg_measure::stats::median;

/// The sum of the readings divided by the time of the batch, for each size.
pub(in crate::arms) static RDTSC_SMALL: Probe = Probe { name: "rdtsc-small", parse };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RdtscParameters {
    /// Bytes per copy.
    sizes: Vec<usize>,
    #[serde(default = "of_the_library")]
    kernel: String,
}

fn of_the_library() -> String {
    "libc".to_owned()
}

/// Number of copies per batch. The batch is then long compared with the two clock readings around
/// it.
const COPIES: u32 = 20_000;
/// Number of rounds. Each runs one batch with a reading around every copy, and one without.
const ROUNDS: usize = 15;
const MOST_BYTES: usize = 1 << 20;

fn parse(with: &toml::Table) -> Result<Box<dyn ProbeSpec>, Unfit> {
    let with: RdtscParameters = parameters(RDTSC_SMALL.name, with)?;
    if with.sizes.is_empty() || with.sizes.iter().any(|size| !(1..=MOST_BYTES).contains(size)) {
        return Err(refuse(&format!(
            "sizes: expected at least one size from 1 to {MOST_BYTES} bytes"
        )));
    }
    Ok(Box::new(with))
}

fn refuse(reason: &str) -> Unfit {
    Unfit::because(format!("rdtsc-small: {reason}"))
}

impl ProbeSpec for RdtscParameters {
    fn look(&self, _job: &ArmJob<'_>) -> Result<ProbeFinding, Unfit> {
        let kernel = copier(&self.kernel).map_err(|reason| refuse(&reason))?;
        let (mut numbers, mut words) = (Vec::new(), Vec::new());
        for size in self.sizes.iter().copied() {
            let none = || refuse("this processor has no counter that a program can read");
            let ratio = ratio(kernel, size).ok_or_else(none)?;
            words.push(format!("{size} bytes: {ratio:.2} times"));
            numbers.push(ratio);
        }
        Ok(ProbeFinding { numbers, text: format!("the readings add up to {}", words.join(", ")) })
    }
}

/// Returns the median of the rounds; `None` without a time-stamp counter.
fn ratio(kernel: Ready, size: usize) -> Option<f64> {
    let (source, mut sink) = (vec![1; size], vec![0; size]);
    let mut one = || kernel.copy(black_box(&mut sink), black_box(&source));
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = cycle_counter()?;
        (0..COPIES).for_each(|_| one());
        let together = cycle_counter()?.wrapping_sub(began);
        let mut apart = 0_u64;
        for _ in 0..COPIES {
            let began = cycle_counter()?;
            one();
            apart = apart.wrapping_add(cycle_counter()?.wrapping_sub(began));
        }
        ratios.push(apart as f64 / together.max(1) as f64);
    }
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn run(text: &str) -> Result<ProbeFinding, Unfit> {
        let (with, nowhere) = (text.parse().unwrap(), Path::new("/nowhere"));
        RDTSC_SMALL.run(&ArmJob {
            arm: "r",
            with: &with,
            bytes: 0,
            scratch: nowhere,
            studies: nowhere,
            program: nowhere,
        })
    }

    #[test]
    fn every_size_has_its_number_or_the_reason_is_said() {
        match run("sizes = [16, 256]") {
            Ok(found) => {
                assert_eq!(found.numbers.len(), 2);
                assert!(found.numbers.iter().all(|n| n.is_finite() && *n > 0.0), "{found:?}");
                assert!(found.text.contains("256 bytes"), "{}", found.text);
            }
            Err(unfit) => assert!(unfit.reason.contains("counter"), "{}", unfit.reason),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in ["", "sizes = []", "sizes = [0]", "sizes = [16]\nkernel = 'magic'"] {
            assert!(run(wrong).is_err(), "{wrong}");
        }
    }
}
