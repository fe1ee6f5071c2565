//! Prints the speed of every row relative to the C library, by size, on this machine.
//!
//! `cargo run --release -p thalweg-kernels --example sweep [copy|calls|fill|crc|xxh3] [ROUNDS]`
//!
//! Every round runs all rows. A cell is the median over all rounds of the C library's time divided by the row's time; above 1,
//! the row is faster. All samples use one pair of buffers, which stays in the caches if it fits. The result is only a first
//! impression; the lab's protocol decides. `calls` repeats one copy in a loop, inlined as in any caller, so it shows the overhead
//! between the caller and the copy loop.

use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Instant;

use thalweg_kernels::{CHECKSUMS, Checksum, FILLS, Fill, HASHES, Hash, KERNELS, Kernel};

const MOST: usize = 64 << 20;
/// Bytes moved per sample and row: enough for the resolution of the clock.
const VOLUME: usize = 1 << 20;
const CALLS: usize = 4000;

type Arm = (&'static str, Box<dyn Fn(&mut [u8], &[u8])>);

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_else(|| "copy".into());
    let rounds = words.next().and_then(|n| n.parse().ok()).unwrap_or(11);
    let arms = match what.as_str() {
        "copy" => copies(),
        "calls" => calls(),
        "fill" => fills(),
        "crc" => checksums(),
        "xxh3" => hashes(),
        _ => {
            eprintln!("usage: sweep [copy|calls|fill|crc|xxh3] [ROUNDS]");
            std::process::exit(2);
        }
    };
    // The additional bytes allow misaligned positions. All pages are touched here, so that no sample includes page faults.
    let mut source = vec![1; MOST + 4096];
    let mut sink = vec![2; MOST + 4096];
    for misaligned in [0, 1] {
        println!("sink at line + {misaligned}: {}'s time / the row's; {rounds} rounds", arms[0].0);
        print!("{:>9} {:>9}", "bytes", "ns");
        for (name, _) in &arms[1..] {
            print!(" {name:>14}");
        }
        println!();
        for n in sizes() {
            let from = source.as_ptr().align_offset(64);
            let to = sink.as_ptr().align_offset(64) + misaligned;
            row(&arms, &mut sink[to..to + n], &source[from..from + n], rounds);
        }
        source[0] ^= black_box(1);
    }
}

fn sizes() -> Vec<usize> {
    let mut sizes = vec![0, 3, 8, 16, 24, 32, 48, 64, 100, 128, 200, 256, 512, 1024, 1518];
    sizes.extend([2048, 3000, 4096, 8192, 16384]);
    sizes.extend((15..).map(|p| 1 << p).take_while(|&n| n <= MOST));
    sizes
}

fn row(arms: &[Arm], sink: &mut [u8], source: &[u8], rounds: usize) {
    let calls = (VOLUME / source.len().max(1)).clamp(1, CALLS);
    let mut times = vec![Vec::with_capacity(rounds); arms.len()];
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..=rounds {
        shuffle(&mut order, &mut seed);
        for &arm in &order {
            // The first run is not timed, because the previous arm has changed the caches.
            arms[arm].1(black_box(&mut *sink), black_box(source));
            let begun = Instant::now();
            for _ in 0..calls {
                arms[arm].1(black_box(&mut *sink), black_box(source));
            }
            let spent = begun.elapsed().as_nanos() as f64 / calls as f64;
            // The first round only warms up.
            if round > 0 {
                times[arm].push(spent);
            }
        }
    }
    print!("{:>9} {:>9.1}", source.len(), median(times[0].clone()));
    for own in &times[1..] {
        print!(" {:>14.2}", median(times[0].iter().zip(own).map(|(a, b)| a / b).collect()));
    }
    println!();
}

/// Shuffles the order, so that a row does not always follow the same other row.
fn shuffle(order: &mut [usize], seed: &mut u64) {
    for last in (1..order.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        order.swap(last, (*seed % (last as u64 + 1)) as usize);
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns libc first, as the reference of the others, and again last: the ratio of the two shows the noise.
fn copies() -> Vec<Arm> {
    let mut ready: Vec<_> = KERNELS.iter().filter_map(Kernel::ready).collect();
    ready.sort_by_key(|ready| ready.kernel().name != "libc");
    ready.push(ready[0]);
    let arm = |ready: thalweg_kernels::Ready| -> Arm {
        (ready.kernel().name, Box::new(move |sink, source| ready.copy(sink, source)))
    };
    ready.into_iter().map(arm).collect()
}

/// Number of copies in one loop.
const AT_ONCE: usize = 256;
const UNROLLED: usize = 4;

/// Returns Rust's own call of memcpy first and again last, and the crate's `copy` between them. All are inlined as in
/// any caller.
fn calls() -> Vec<Arm> {
    fn looped(name: &'static str, copy: impl Fn(&mut [u8], &[u8]) + 'static) -> Arm {
        let run = move |sink: &mut [u8], source: &[u8]| {
            // The loop is unrolled by hand, because the compiler would unroll it for only one of the two copy functions.
            let mut left = AT_ONCE / UNROLLED;
            while left > 0 {
                for _ in 0..UNROLLED {
                    copy(sink, source);
                    // Without the fence, the compiler would remove all copies but the last.
                    compiler_fence(Ordering::SeqCst);
                }
                left = black_box(left - 1);
            }
        };
        (name, Box::new(run))
    }
    let own = || looped("copy_from_slice", |sink, source| sink.copy_from_slice(source));
    vec![own(), looped("copy", |sink, source| thalweg_kernels::copy(sink, source)), own()]
}

fn fills() -> Vec<Arm> {
    let mut ready: Vec<_> = FILLS.iter().filter_map(Fill::ready).collect();
    ready.sort_by_key(|ready| ready.row().name != "libc");
    ready.push(ready[0]);
    let arm = |ready: thalweg_kernels::ReadyFill| -> Arm {
        (ready.row().name, Box::new(move |sink, _| ready.fill(sink, 7)))
    };
    ready.into_iter().map(arm).collect()
}

/// The reference copies with libc, and then sums the source with the first available row.
fn checksums() -> Vec<Arm> {
    let best = CHECKSUMS.iter().find_map(Checksum::ready).expect("the software row");
    let libc = thalweg_kernels::by_name("libc").and_then(Kernel::ready).expect("the C library");
    let apart: Arm = (
        "libc, then crc",
        Box::new(move |sink, source| {
            libc.copy(sink, source);
            black_box(best.sum(source, 0));
        }),
    );
    let fused = CHECKSUMS.iter().filter_map(Checksum::ready).map(|ready| -> Arm {
        let run = move |sink: &mut [u8], source: &[u8]| {
            black_box(ready.copy(sink, source, 0));
        };
        (ready.row().name, Box::new(run))
    });
    std::iter::once(apart).chain(fused).collect()
}

/// Like [`checksums`], for hashes.
fn hashes() -> Vec<Arm> {
    let best = HASHES.iter().find_map(Hash::ready).expect("the portable row");
    let libc = thalweg_kernels::by_name("libc").and_then(Kernel::ready).expect("the C library");
    let apart: Arm = (
        "libc, then xxh3",
        Box::new(move |sink, source| {
            libc.copy(sink, source);
            black_box(best.sum(source));
        }),
    );
    let fused = HASHES.iter().filter_map(Hash::ready).map(|ready| -> Arm {
        let run = move |sink: &mut [u8], source: &[u8]| {
            black_box(ready.copy(sink, source));
        };
        (ready.row().name, Box::new(run))
    });
    std::iter::once(apart).chain(fused).collect()
}
