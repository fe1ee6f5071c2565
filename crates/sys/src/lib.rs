//! Safe wrappers of the system calls that thalweg makes, and the seam where tests inject faults.
//!
//! Every function makes one system call and returns its result, without a retry on EINTR, a
//! fallback or a loop. Exceptions are documented at the function. Sizes are in bytes.
#![allow(
    clippy::disallowed_methods,
    reason = "this crate is where the raw calls are wrapped, counted and made to fail"
)]

pub mod buffer;
pub mod copy;
pub mod environ;
pub mod epoll;
pub mod fault;
pub mod fork;
pub mod futex;
pub mod handed;
mod helper;
pub mod host;
pub mod io;
pub mod map;
pub mod memfd;
pub mod mirror;
pub mod net;
pub mod opened;
pub mod peer;
mod per_process;
pub mod pipe;
pub mod process;
pub mod region;
pub mod remote;
pub mod robust;
pub mod signal;
pub mod standard;
pub mod tally;
pub mod uring;
pub mod usage;
pub mod user;
pub mod watch;
pub mod xattr;

pub use rustix::io::Errno;

/// Runs the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct SysReadme;
