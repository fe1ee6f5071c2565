use super::*;
use std::path::Path;

fn open(with: &toml::Table, bytes: u64) -> Result<Box<dyn Piece>, Unfit> {
    let nowhere = Path::new("/nowhere");
    let job = Job { arm: "m", with, bytes, scratch: nowhere, studies: nowhere, program: nowhere };
    Memory.open(&job)
}

fn table(text: &str) -> toml::Table {
    text.parse().unwrap()
}

#[test]
fn every_kernel_copies_odd_sizes_for_every_use() {
    for kernel in KERNELS.iter().filter(|kernel| kernel.ready().is_some()) {
        for usage in ["copy", "copy-then-checksum", "ring"] {
            for (bytes, offset) in [(1, 0), (7, 1), (64, 63), (255, 3), (1518, 0), (70_001, 17)] {
                let with = table(&format!(
                    "kernel = '{}'\nuse = '{usage}'\nresidency = '300KiB'\noffset = {offset}",
                    kernel.name
                ));
                let mut piece = open(&with, bytes).unwrap();
                piece.warm_up().unwrap();
                let sample = piece.sample(77).unwrap();
                assert_eq!(sample.bytes, bytes * 77);
                assert!(sample.wall > std::time::Duration::ZERO);
                piece.check().unwrap_or_else(|e| panic!("{} {usage} {bytes}: {e}", kernel.name));
                assert_eq!(piece.promises(), Some(Guarantees::COPIED));
            }
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_the_choice_there_is() {
    let reason = |text: &str, bytes| match open(&table(text), bytes) {
        Ok(_) => panic!("{text} was taken"),
        Err(unfit) => unfit.reason,
    };
    assert!(reason("kernel = 'magic'", 1).contains("libc"));
    assert!(reason("kernel = 'libc'\nuse = 'magic'", 1).contains("ring"));
    assert!(reason("kernel = 'libc'\noffset = 64", 1).contains("63"));
    assert!(reason("kernel = 'libc'\nresidency = 'l9'", 1).contains("l9"));
    assert!(reason("kernel = 'libc'\nspeed = 1", 1).contains("speed"));
    assert!(reason("", 1).contains("kernel"));
    assert!(reason("kernel = 'libc'", 0).contains("0 bytes"));
    assert!(reason("kernel = 'libc'", u64::MAX).contains("bytes"));
    let mut huge = open(&table("kernel = 'libc'"), 1 << 39).unwrap();
    assert!(huge.warm_up().unwrap_err().reason.contains("MiB"));
}
