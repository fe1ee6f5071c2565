//! Benchmarks copy kernels with the measure of article 004: packets per second through a vhost-like switch. It stands in for OvS,
//! DPDK and a network card, with copies in the corresponding places.
//!
//! Reading order: [`queue`] is the memory that a guest and the switch share. [`guest`] creates and checks packets. [`switch`]
//! forwards them and makes the copies. [`copier`] lists the kernels. [`bench`](mod@bench) compares them, and [`worker`] serves a
//! study.
// A kernel must be compiled into the function that enables its instruction set.
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

use thalweg_kernels::cpu;
use thalweg_sys::signal;

use crate::bench::{BenchSetting, table};
use crate::sizes::{PacketOrder, PacketSizes};

/// Forwards packets between two ports and says how many a second, kernel by kernel.
///
/// Examples:
///   thalweg-packets
///   thalweg-packets --sizes 64 --kernels libc,inline-avx2,rep-movsb
///   thalweg-packets --sizes 1518 --mbufs 8192 --cores 2 --rounds 15
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Kernels, the first being what the others are compared with [default: all this CPU runs]
    #[arg(long, value_delimiter = ',')]
    kernels: Vec<String>,
    /// Bytes of a packet, 60 to 1518, or imix: 7 of 64, 4 of 594, 1 of 1518 [default: imix]
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
    /// Packets in a sample
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    packets: u64,
    /// Rounds; in each, every kernel takes one sample, in a new random order
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Serve a study: speak the worker protocol with the one kernel given. A packet is an operation,
    /// so --packets and --rounds are the study's to say
    #[arg(long, hide = true, conflicts_with_all = ["packets", "rounds"])]
    worker: bool,
    /// From the study: bytes of an operation, so of a packet unless --sizes says otherwise
    #[arg(long, hide = true, requires = "worker")]
    bytes: Option<String>,
    /// From the study: a folder for files, of which there are none
    #[arg(long, hide = true, requires = "worker")]
    scratch: Option<PathBuf>,
}

impl Arguments {
    fn setting(&self) -> Result<BenchSetting, String> {
        let of_bytes =
            |text: &String| text.parse::<PacketSizes>().map_err(|e| format!("bytes={text}: {e}"));
        let sizes = match (self.sizes, &self.bytes) {
            (Some(sizes), _) => sizes,
            (None, Some(bytes)) => of_bytes(bytes)?,
            (None, None) => PacketSizes::Imix,
        };
        let Self { order, mbufs, cores, packets, .. } = *self;
        Ok(BenchSetting { sizes, order, mbufs, cores, packets })
    }

    fn run(&self) -> Result<(), String> {
        let setting = self.setting()?;
        match (self.worker, &self.kernels[..]) {
            (true, [kernel]) => worker::serve(kernel, &setting),
            (true, _) => Err("--worker serves exactly one kernel".to_owned()),
            (false, kernels) => table(kernels, &setting, self.rounds),
        }
    }
}

/// A study passes `key=value`, both to this program and to its counterpart in C. Converts these words to options.
fn as_options(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.iter().any(|word| word == "--worker") {
        for word in words.iter_mut().skip(1).filter(|word| is_setting(word)) {
            let mut option = OsString::from("--");
            option.push(&*word);
            *word = option;
        }
    }
    words
}

fn is_setting(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    !bytes.starts_with(b"-") && bytes.contains(&b'=')
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(as_options(env::args_os()));
    if !arguments.worker {
        // Lets SIGPIPE end the program, as in other tools, if the reader of the table exits. The call cannot fail for an existing
        // signal.
        let _ = signal::reset_sigpipe();
    }
    match cpu::hidden().and_then(|_| arguments.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("thalweg-packets: {reason}");
            ExitCode::from(2)
        }
    }
}
