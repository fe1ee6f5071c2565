//! Flags of a sharded copy, which several processes share.

use clap::Args;
use std::time::Duration;
use thalweg_core::quantity::{parse_duration, parse_some_bytes};

use crate::commands::copy::shard::Shard;

const FLEET: &str = "Several machines";

/// The rank of this process among all processes of a sharded copy.
#[derive(Args, Debug, PartialEq, Eq)]
pub struct ShardArgs {
    /// Share this copy with other processes; R/N is rank R of N, and auto asks the scheduler
    ///
    /// Run the same command on all machines; they must share SRC and DST. Ranks count from 0. `auto` takes the rank
    /// from Open MPI, PMI, Slurm or a Kubernetes Indexed Job. `list`, or no value, prints the environment
    /// variables of these schedulers and the resulting rank. DST names the new directory; with -T, it may already exist.
    #[arg(long, value_name = "RANK", value_parser = Shard::parse, help_heading = FLEET)]
    #[arg(num_args = 0..=1, default_missing_value = "list")]
    pub shard: Option<Shard>,
    /// Wait this long for rank 0, which divides the copy into tasks (with --shard)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = FLEET)]
    #[arg(requires = "shard", default_value = "10m")]
    pub wait: Duration,
    /// Divide the copy into tasks of this size (with --shard); the value of rank 0 applies to all
    #[arg(long, value_name = "SIZE", value_parser = parse_some_bytes, help_heading = FLEET)]
    #[arg(requires = "shard", default_value = "128M")]
    pub shard_size: u64,
}

impl Default for ShardArgs {
    fn default() -> Self {
        Self { shard: None, wait: Duration::from_secs(600), shard_size: 128 << 20 }
    }
}
