//! The small file systems on which the power is cut.

use std::{fs::File, path::Path, process::Command};

use crate::support::run;

/// A file system, with the options to make and mount it.
pub struct DiskSystem {
    pub name: &'static str,
    pub mkfs: &'static str,
    bytes: u64,
    words: &'static [&'static str],
    /// Mount options with a short commit interval, so that metadata is committed while a command runs.
    pub options: &'static str,
}

/// mkfs runs without discard, which would punch holes into the image.
pub const SYSTEMS: [DiskSystem; 3] = [
    DiskSystem {
        name: "ext4",
        mkfs: "mkfs.ext4",
        bytes: 64 << 20,
        words: &["-q", "-F", "-b", "4096", "-E", "nodiscard"],
        options: "commit=1",
    },
    // This size is the smallest that mkfs.xfs accepts. `nouuid` is needed because an image and its copy have the same
    // UUID.
    DiskSystem {
        name: "xfs",
        mkfs: "mkfs.xfs",
        bytes: 300 << 20,
        words: &["-q", "-f", "-K"],
        options: "nouuid",
    },
    DiskSystem {
        name: "btrfs",
        mkfs: "mkfs.btrfs",
        bytes: 128 << 20,
        words: &["-q", "-f", "-K"],
        options: "commit=1",
    },
];

impl DiskSystem {
    pub fn named(name: &str) -> &'static Self {
        SYSTEMS.iter().find(|system| system.name == name).expect("a file system of SYSTEMS")
    }

    /// Makes an empty file system in a new sparse image.
    pub fn make(&self, image: &Path) {
        File::create_new(image).unwrap().set_len(self.bytes).unwrap();
        run(Command::new(self.mkfs).args(self.words).arg(image)).expect(0);
    }
}

/// Copies an image to a new inode, because the kernel may still write to an old file of this name. Runs of zeros become
/// holes, so that the next copy is fast.
pub fn copy_image(from: &Path, to: &Path) {
    run(Command::new("cp").args(["--sparse=always", "--remove-destination"]).args([from, to]))
        .expect(0);
}
