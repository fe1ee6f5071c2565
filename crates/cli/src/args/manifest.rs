//! Arguments of `thalweg manifest`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

use super::ProgressArgs;

/// Writes the hash and the name of every file
///
/// One line for each file below DIR, sorted by name, as sha256sum, b3sum and xxhsum -H2 write them and
/// their -c reads them in DIR. Names are those below DIR. Symbolic links and special files have no
/// line; how many there are is said.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManifestArgs {
    /// The folder whose files are listed, or one file
    #[arg(value_name = "DIR")]
    pub path: PathBuf,

    /// The hash of each file
    #[arg(long, value_name = "HASH", value_enum, default_value_t = HashName::Blake3)]
    pub hash: HashName,
    /// Write to this file, which has its name when it is whole, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How many threads read
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,

    #[command(flatten)]
    pub shown: ProgressArgs,
}

/// The hashes of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HashName {
    /// SHA-256, for sha256sum -c
    Sha256,
    /// BLAKE3, for b3sum -c
    Blake3,
    /// XXH3 of 128 bits, for xxhsum -c: not cryptographic
    #[value(alias = "xxh128")]
    Xxh3,
}

const EXAMPLES: &str = "\
Examples:
  thalweg manifest -o photos.b3 photos
  (cd photos && b3sum -c ../photos.b3)
  thalweg verify --manifest photos.b3 /backup/photos
  thalweg manifest --hash sha256 . | diff - yesterday.sums

Exit status: 0 done; 1 something cannot be read, and with -o nothing was written; 2 usage;
128 and the signal's number when interrupted.";
