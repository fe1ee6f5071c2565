//! Facts about the machine, as the kernel reports them. A container may hide any of the files that
//! are read here. An unknown fact is therefore `None`, never a guess, and never causes a panic.

mod cache;
mod cgroup;
mod counter;
mod filesystem;
mod machine;

pub use cache::{Cache, cache_size, caches, largest_cache, second_cache};
pub use counter::cycle_counter;
pub use filesystem::{FileSystem, filesystem, may_fail_at_close};
pub use machine::{
    ThreadStatus, cores_online, cpu_model, hypervisor, io_uring_disabled, kernel_release,
    libc_version, memlock_limit, memory_available, microcode, pipe_max_size, pipe_user_pages_soft,
    thp_enabled,
};
