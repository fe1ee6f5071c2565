//! Flags of a sharded copy, which several processes share.

use clap::Args;
use std::time::Duration;
use thalweg_core::quantity::{parse_duration, parse_some_bytes};

use crate::commands::copy::shard::Shard;

const FLEET: &str = "On many machines";

/// Which of many processes this is.
#[derive(Args, Debug)]
pub struct Fleet {
    /// Work on this copy together with all who run the same command, on machines that share SRC and DST:
    /// as rank R of N, from 0 on (R/N), or as Open MPI, PMI, Slurm or a Kubernetes Indexed Job say
    /// (auto). list, or no value, says what they say here. DST is the new folder itself, or with -T one
    /// that is there
    #[arg(long, value_name = "RANK", value_parser = Shard::parse, help_heading = FLEET)]
    #[arg(num_args = 0..=1, default_missing_value = "list")]
    pub shard: Option<Shard>,
    /// How long to wait for the plan, which rank 0 makes
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = FLEET)]
    #[arg(requires = "shard", default_value = "10m")]
    pub wait: Duration,
    /// Bytes of a task; what rank 0 says counts
    #[arg(long, value_name = "SIZE", value_parser = parse_some_bytes, help_heading = FLEET)]
    #[arg(requires = "shard", default_value = "128M")]
    pub shard_size: u64,
}

impl Default for Fleet {
    fn default() -> Self {
        Self { shard: None, wait: Duration::from_secs(600), shard_size: 128 << 20 }
    }
}
