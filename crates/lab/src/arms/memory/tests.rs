use super::*;
use std::path::Path;
use thalweg_kernels::{CHECKSUMS, FILLS, HASHES, KERNELS, tuned};

fn open(with: &toml::Table, bytes: u64) -> Result<Box<dyn Arm>, Unfit> {
    let nowhere = Path::new("/nowhere");
    let job =
        ArmJob { arm: "m", with, bytes, scratch: nowhere, studies: nowhere, program: nowhere };
    MEMORY.open(&job)
}

fn table(text: &str) -> toml::Table {
    text.parse().unwrap()
}

fn done(text: &str, bytes: u64) -> Sample {
    let mut piece = open(&table(text), bytes).unwrap_or_else(|e| panic!("{text}: {e}"));
    piece.warm_up().unwrap();
    let sample = piece.sample(77).unwrap();
    assert!(sample.wall > std::time::Duration::ZERO);
    piece.check().unwrap_or_else(|e| panic!("{text} {bytes}: {e}"));
    sample
}

/// Returns the kernels that this CPU can run and that need no profile.
fn kernels() -> impl Iterator<Item = &'static str> {
    let ready = KERNELS.iter().filter(|kernel| kernel.ready().is_some());
    ready.map(|kernel| kernel.name).filter(|name| *name != tuned::NAME)
}

/// Returns the parameters and sizes with which each kernel is tested.
fn cases() -> Vec<(String, u64)> {
    let usages = ["copy", "copy-then-checksum", "copy-then-xxh3", "read-after", "reload", "ring"];
    let sizes = [(1, 0), (7, 1), (64, 63), (255, 3), (1518, 0), (70_001, 17)];
    let odd_sizes = usages.iter().flat_map(|usage| {
        sizes.map(|(bytes, offset)| {
            (format!("use = '{usage}'\nresidency = '300KiB'\noffset = {offset}"), bytes)
        })
    });
    let sinks = ["4k-alias", "page-edge", "fresh"];
    let kinds_of_sink = sinks
        .iter()
        .flat_map(|sink| [1, 63, 5000].map(|bytes| (format!("sink = '{sink}'"), bytes)));
    let orders = ["iid", "predictable"];
    let mixes = orders.iter().flat_map(|order| {
        ["line", "page-edge"].map(|sink| {
            let sizes = format!("sizes = 'memcpy-fleet'\norder = '{order}'");
            (format!("{sizes}\nsink = '{sink}'\nresidency = '64KiB'"), 4000)
        })
    });
    odd_sizes.chain(kinds_of_sink).chain(mixes).collect()
}

#[test]
fn every_kernel_copies_odd_sizes_for_every_use() {
    for kernel in kernels() {
        for (with, bytes) in thalweg_testing::Sample::new(kernel, 5).of(cases()) {
            let is_mix = with.contains("sizes =");
            let sample = done(&format!("kernel = '{kernel}'\n{with}"), bytes);
            assert!(is_mix || sample.bytes == bytes * 77, "{with}");
        }
    }
}

#[test]
fn fills_checksums_and_reads_are_works_too() {
    let fills = FILLS.iter().filter(|row| row.name != tuned::NAME);
    for row in fills.filter(|row| row.ready().is_some()) {
        for sink in ["line", "fresh", "page-edge"] {
            done(&format!("kernel = '{}'\nuse = 'fill'\nsink = '{sink}'", row.name), 3001);
        }
    }
    for row in CHECKSUMS.iter().filter(|row| row.ready().is_some()) {
        done(&format!("kernel = '{}'\nuse = 'fused-checksum'\noffset = 1", row.name), 3001);
    }
    for row in HASHES.iter().filter(|row| row.ready().is_some()) {
        done(&format!("kernel = '{}'\nuse = 'fused-xxh3'\noffset = 1", row.name), 3001);
    }
    done("kernel = 'widest'\nuse = 'fused-checksum'", 70_000);
    done("kernel = 'widest'\nuse = 'fused-xxh3'", 70_000);
    done("use = 'read'", 70_000);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn stream_may_ask_for_its_source_ahead() {
    for distance in [0, 512, 4096] {
        done(&format!("kernel = 'stream'\nprefetch = {distance}\nthreads = 2"), 70_000);
    }
}

#[test]
fn two_threads_move_twice_the_bytes() {
    assert_eq!(done("kernel = 'libc'\nthreads = 2", 1000).bytes, 2 * 77_000);
    let mix = "kernel = 'libc'\nthreads = 2\nsizes = 'memmove-fleet'\nresidency = '64KiB'";
    assert_eq!(done(mix, 1000).bytes, 2 * 77_000);
    let fresh = open(&table("kernel = 'libc'\nthreads = 2\nsink = 'fresh'"), 5000).unwrap();
    assert!(fresh.is_fresh());
}

/// A copy that needs no memory.
struct Nothing;

impl RepeatedCopy for Nothing {
    fn allocate(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn copy(&mut self, _times: u32) -> u64 {
        0
    }

    fn verify(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn bytes(&self) -> usize {
        1
    }
}

#[test]
fn a_sample_with_fewer_threads_does_not_count_and_is_no_wrong_data() {
    let mut arm = Threads::of(vec![Nothing, Nothing]);
    arm.warm_up().unwrap();
    arm.short = Some("a thread could not be started".to_owned());
    assert!(arm.warm_up().is_err() && arm.sample(1).is_err());
    arm.check().unwrap();
}

#[test]
fn a_fresh_sink_faults_at_every_page() {
    let sample = done("kernel = 'libc'\nsink = 'fresh'", 1 << 20);
    assert!(sample.faults() >= 77 * (1 << 20) / 4096, "{sample:?}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_choice_there_is() {
    let reason = |text: &str, bytes| match open(&table(text), bytes) {
        Ok(_) => panic!("{text} was taken"),
        Err(unfit) => unfit.reason,
    };
    let libc = |more: &str| reason(&format!("kernel = 'libc'\n{more}"), 64);
    assert!(reason("kernel = 'magic'", 1).contains("libc"));
    assert!(libc("use = 'magic'").contains("ring"));
    assert!(reason("kernel = 'magic'\nuse = 'fill'", 1).contains("libc"));
    assert!(reason("kernel = 'magic'\nuse = 'fused-checksum'", 1).contains("widest"));
    assert!(reason("kernel = 'magic'\nuse = 'fused-xxh3'", 1).contains("widest"));
    assert!(libc("prefetch = 512").contains("stream"));
    assert!(libc("use = 'ring'\nprefetch = 512").contains("prefetch"));
    assert!(libc("use = 'read'").contains("must not have a kernel"));
    assert!(libc("offset = 64").contains("63"));
    assert!(libc("residency = 'l9'").contains("l9"));
    assert!(libc("speed = 1").contains("speed"));
    assert!(libc("threads = 0").contains("64"));
    assert!(libc("sink = 'nowhere'").contains("page-edge"));
    assert!(libc("sizes = 'mine'\nresidency = 'l1'").contains("memcpy-fleet"));
    assert!(libc("sizes = 'memcpy-fleet'").contains("residency"));
    assert!(libc("sizes = 'memcpy-fleet'\nresidency = 'l1'\noffset = 1").contains("offset = 0"));
    assert!(libc("order = 'iid'").contains("distribution"));
    assert!(libc("sink = 'fresh'\noffset = 1").contains("offset"));
    assert!(libc("sink = 'page-edge'\nresidency = 'l2'").contains("residency"));
    assert!(libc("use = 'ring'\nsink = 'fresh'").contains("ring"));
    assert!(reason("", 1).contains("kernel"));
    assert!(reason("kernel = 'libc'", 0).contains("0 bytes"));
    assert!(reason("kernel = 'libc'", u64::MAX).contains("bytes"));
    let mut huge = open(&table("kernel = 'libc'"), 1 << 39).unwrap();
    assert!(huge.warm_up().unwrap_err().reason.contains("MiB"));
}
