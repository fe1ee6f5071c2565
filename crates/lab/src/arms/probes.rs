//! Probes: decide claims about mechanisms by trying them and observing the result, without measuring time. One file
//! for each topic. Results can differ between kernels.

pub(super) mod alias;
pub(super) mod bulk_memory;
pub(super) mod calls;
pub(super) mod rdtsc_small;
pub(super) mod splice_returns;
pub(super) mod vmsplice;
pub(super) mod worker_memory;
