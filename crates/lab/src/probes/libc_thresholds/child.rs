//! A process that copies by libc's memcpy under the settings it was started with, and says how long
//! each size took: `helper memcpy`.

use std::{
    fmt::Write as _,
    hint::black_box,
    io::Write as _,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use thalweg_core::profile::LIBC;
use thalweg_kernels::{Ready, by_name};
use thalweg_sys::map::Map;

use crate::{helper, measure::sample::Sample, probes::trial::Setting};

/// The sizes at which the effect of a setting is measured, in bytes.
pub const SIZES: [u64; 5] = [3 << 10, 24 << 10, 256 << 10, 8 << 20, 64 << 20];

/// How long each size is copied, at either place of its sink.
const EACH: Duration = Duration::from_millis(4);
/// The sink lies half a page away from the source's place in its page, then one byte further.
const PLACES: [usize; 2] = [2048, 2049];

/// Answers a line for each size: bytes, and nanoseconds of a copy to a line's beginning together with
/// one to the byte after it.
pub fn main(words: &[String]) -> Result<(), String> {
    if !words.is_empty() {
        return Err("it takes no arguments".to_owned());
    }
    let libc = by_name(LIBC).and_then(thalweg_kernels::Kernel::ready).ok_or("no libc")?;
    let mut text = String::new();
    for size in SIZES {
        let bytes = usize::try_from(size).map_err(|_| format!("{size} bytes are too many"))?;
        let nanoseconds = timed(libc, bytes)?;
        let _ = writeln!(text, "{size} {nanoseconds:.1}");
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).map_err(|e| format!("stdout: {e}"))
}

fn timed(libc: Ready, bytes: usize) -> Result<f64, String> {
    let mapped = |len| Map::anonymous(len, false).map_err(|e| format!("mmap: {e}"));
    let (mut source, mut sink) = (mapped(bytes)?, mapped(bytes + PLACES[1])?);
    let source = source.bytes_mut().unwrap_or_default();
    let sink = sink.bytes_mut().unwrap_or_default();
    source.fill(1);
    sink.fill(2);
    let source = &*source;
    // A few between two looks at the clock, which takes longer than a small copy.
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
        sum += began.elapsed().as_secs_f64() * 1e9 / f64::from(copies);
    }
    Ok(sum)
}

/// Runs such a process under a setting; its samples are in the order of [`SIZES`].
pub fn run(program: &Path, setting: &Setting) -> Result<Vec<Sample>, String> {
    let failed = |why: String| format!("measuring memcpy under {}: {why}", setting.name);
    let mut command = helper::command(program, "memcpy");
    // It preloads nothing, so there is no object.
    setting.put(&mut command, Path::new(""), None);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| failed(format!("{}: {e}", program.display())))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, words.trim())));
    }
    read(&String::from_utf8_lossy(&output.stdout)).map_err(failed)
}

fn read(text: &str) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::new();
    for line in text.lines() {
        let bad = || format!("it answered {line:?}");
        let (size, nanoseconds) = line.split_once(' ').ok_or_else(bad)?;
        let nanoseconds = nanoseconds.parse::<f64>().ok().filter(|ns| *ns > 0.0).ok_or_else(bad)?;
        let wall = Duration::try_from_secs_f64(nanoseconds / 1e9).map_err(|_| bad())?;
        let bytes = size.parse().map_err(|_| bad())?;
        samples.push(Sample { wall, bytes, ..Sample::default() });
    }
    if samples.iter().map(|sample| sample.bytes).eq(SIZES) {
        Ok(samples)
    } else {
        Err(format!("it answered {} sizes", samples.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line_for_each_size_or_an_error() {
        let good = SIZES.map(|size| format!("{size} 12.5\n")).concat();
        let samples = read(&good).unwrap();
        assert_eq!(samples.len(), SIZES.len());
        assert_eq!(samples[0].wall, Duration::from_nanos(12));
        for bad in ["", "3072", "3072 fast\n", "3072 -1\n", "3072 inf\n", "1 2\n", "x 2\n"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(&good.replace("12.5", "0")).is_err());
    }
}
