//! Probes: claims of mechanism decided by doing it and looking, without a clock. One file for each
//! theme; what one finds on this kernel may differ from what another kernel does.

pub(super) mod alias;
pub(super) mod bulk_memory;
pub(super) mod calls;
pub(super) mod rdtsc_small;
pub(super) mod splice_returns;
pub(super) mod vmsplice;
pub(super) mod worker_memory;
