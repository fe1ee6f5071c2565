//! The loops for x86-64. Miri supports neither assembly nor most intrinsics: it runs only `sse2` and `four`.

pub mod four;
pub mod wide;

#[cfg(not(miri))]
pub mod branchless;
#[cfg(not(miri))]
pub mod mask;
#[cfg(not(miri))]
pub mod quads;
#[cfg(not(miri))]
pub mod rep;
#[cfg(not(miri))]
pub mod stream;
#[cfg(not(miri))]
pub mod stream_nta;
