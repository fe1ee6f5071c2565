//! Probes: decide claims about mechanisms by trying them and observing the result, without measuring time. Each file
//! covers one topic. Results can differ between versions of the Linux kernel.

pub(super) mod alias;
pub(super) mod bulk_memory;
pub(super) mod calls;
pub(super) mod rdtsc_small;
pub(super) mod splice_returns;
pub(super) mod vmsplice;
pub(super) mod worker_memory;
