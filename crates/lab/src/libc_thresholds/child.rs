//! The process behind `helper memcpy`: copies with libc's memcpy under the settings of its environment, and reports
//! the time for each size.

use std::{
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};
use thalweg_core::profile::LIBC;
use thalweg_kernels::{Ready, by_name};
use thalweg_sys::map::Map;

use crate::trial::TrialSetting;
use thalweg_measure::{
    StopCheck, process,
    sample::Sample,
    schedule::SampleFailure,
    session::{self, SessionPatience},
};

/// The sizes in bytes at which the effect of a setting is measured.
pub const SIZES: [u64; 5] = [3 << 10, 24 << 10, 256 << 10, 8 << 20, 64 << 20];

/// Duration of the copies for each size and each offset of the sink.
const EACH: Duration = Duration::from_millis(4);
/// Offsets of the sink relative to the source's position in its page: half a page, and one byte more.
const PLACES: [usize; 2] = [2048, 2049];

/// Reports a sample for each size: the time of a copy to a cache-line boundary plus that of a copy to one byte after
/// it.
pub fn main(words: &[String]) -> Result<(), String> {
    if !words.is_empty() {
        return Err("it takes no arguments".to_owned());
    }
    let () = session::job()?;
    let libc = by_name(LIBC)
        .and_then(thalweg_kernels::Kernel::ready)
        .ok_or("the kernel libc does not exist")?;
    let samples = SIZES.map(|size| {
        let bytes = usize::try_from(size).map_err(|_| format!("{size} bytes are too many"))?;
        Ok(Sample { wall: timed(libc, bytes)?, bytes: size, ..Sample::default() })
    });
    session::report(&samples.into_iter().collect::<Result<Vec<Sample>, String>>()?)
}

fn timed(libc: Ready, bytes: usize) -> Result<Duration, String> {
    let mapped = |len| Map::anonymous(len, false).map_err(|e| format!("mmap: {e}"));
    let (mut source, mut sink) = (mapped(bytes)?, mapped(bytes + PLACES[1])?);
    let source = source.bytes_mut().unwrap_or_default();
    let sink = sink.bytes_mut().unwrap_or_default();
    source.fill(1);
    sink.fill(2);
    let source = &*source;
    // Several copies per reading of the clock, because reading the clock takes longer than a small copy.
    let at_once = ((1 << 20) / bytes.max(1)).max(1) as u32;
    let mut sum = 0.0;
    for place in PLACES {
        let sink = &mut sink[place..place + bytes];
        libc.copy(sink, source);
        let (began, mut copies) = (Instant::now(), 0_u32);
        while began.elapsed() < EACH || copies < 2 {
            for _ in 0..at_once {
                libc.copy(black_box(&mut *sink), black_box(source));
            }
            copies += at_once;
        }
        sum += began.elapsed().as_secs_f64() / f64::from(copies);
    }
    Ok(Duration::from_secs_f64(sum))
}

/// Runs `helper memcpy` under a setting. Returns the samples in the order of [`SIZES`].
pub fn run(
    program: &Path,
    setting: &TrialSetting,
    stop: &StopCheck<'_>,
) -> Result<Vec<Sample>, SampleFailure> {
    let failed = |why: String| format!("cannot measure memcpy with {}: {why}", setting.name);
    let mut command = process::helper(program, "memcpy");
    // A setting of glibc's thresholds preloads no object, so the path is empty.
    setting.put(&mut command, Path::new(""), None);
    let samples = session::run(command, &(), SessionPatience::DISPOSABLE, stop, &mut Some);
    let samples =
        samples.or_else(|failure| Err(SampleFailure::from(failed(failure.unfit()?.reason))))?;
    Ok(checked(samples).map_err(failed)?)
}

fn checked(samples: Vec<Sample>) -> Result<Vec<Sample>, String> {
    let complete = samples.iter().map(|sample| sample.bytes).eq(SIZES);
    if complete && samples.iter().all(|sample| !sample.wall.is_zero()) {
        Ok(samples)
    } else {
        Err(format!("unexpected answer {samples:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_time_for_each_size_or_an_error() {
        let taken = |wall, bytes| Sample { wall, bytes, ..Sample::default() };
        let good = SIZES.map(|size| taken(Duration::from_nanos(12), size)).to_vec();
        assert_eq!(checked(good.clone()).unwrap().len(), SIZES.len());
        assert!(checked(good[1..].to_vec()).is_err());
        assert!(checked(SIZES.map(|size| taken(Duration::ZERO, size)).to_vec()).is_err());
    }
}
