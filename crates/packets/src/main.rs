//! Benchmarks copy kernels with the measure of article 004: packets per second through a vhost-like switch. It stands in for OvS,
//! DPDK and a network card, with copies in the corresponding places.
//!
//! Reading order: [`queue`] is the memory that a guest and the switch share. [`guest`] creates and checks packets. [`switch`]
//! forwards them and makes the copies. [`copier`] lists the kernels. [`bench`](mod@bench) runs them, and [`worker`] serves study 004,
//! which compares them.
// `inline(always)` compiles a kernel into the function that enables its instruction set.
#![allow(clippy::inline_always)]

mod bench;
mod copier;
mod guest;
mod memory;
mod queue;
mod sizes;
mod switch;
mod worker;

use clap::Parser;
use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::ExitCode,
};

use crate::bench::BenchSetting;
use crate::sizes::{PacketOrder, PacketSizes};
use thalweg_kernels::cpu;

/// Forwards packets between two ports with one copy kernel, as a worker of study 004
///
/// It speaks the worker protocol (docs/reference/formats.md). One packet is one operation. `thalweg study 004` compares
/// the kernels.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The copy kernel
    #[arg(long, value_name = "KERNEL")]
    kernels: String,
    /// Bytes of a packet, 60 to 1518, or imix: 7 of 64, 4 of 594, 1 of 1518 [default: --bytes]
    #[arg(long)]
    sizes: Option<PacketSizes>,
    /// Order of the sizes of imix: iid draws, rotating repeats the same twelve
    #[arg(long, default_value = "iid")]
    order: PacketOrder,
    /// Packet buffers of the switch, used in turn: 512 stay in a second-level cache, 8192 do not
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(64..=65536))]
    mbufs: u32,
    /// 1: guests and switch take turns; 2: the switch has a thread of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    cores: u8,
    /// Accepted, as this program is always a worker
    #[arg(long)]
    worker: bool,
    /// Bytes of an operation, set by the study: of a packet unless --sizes differs
    #[arg(long)]
    bytes: String,
    /// Directory for files, set by the study; not used
    #[arg(long)]
    scratch: Option<PathBuf>,
}

impl Arguments {
    fn run(&self) -> Result<(), String> {
        let text = &self.bytes;
        let sizes = match self.sizes {
            Some(sizes) => sizes,
            None => text.parse().map_err(|e| format!("bytes={text}: {e}"))?,
        };
        let Self { order, mbufs, cores, .. } = *self;
        worker::serve(&self.kernels, &BenchSetting { sizes, order, mbufs, cores, packets: 0 })
    }
}

/// Converts the `key=value` words of a study to options. The study passes the same words to the counterpart in C.
fn as_options(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    for word in words.iter_mut().skip(1).filter(|word| is_setting(word)) {
        let mut option = OsString::from("--");
        option.push(&*word);
        *word = option;
    }
    words
}

fn is_setting(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    !bytes.starts_with(b"-") && bytes.contains(&b'=')
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(as_options(env::args_os()));
    match cpu::hidden().and_then(|_| arguments.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("thalweg-packets: {reason}");
            ExitCode::from(2)
        }
    }
}
