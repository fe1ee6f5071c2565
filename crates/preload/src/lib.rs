//! The object `thalweg trial` puts under an unmodified program, so that its memcpy, memmove, mempcpy,
//! memset and their checked forms are a chosen kernel.
//!
//! This crate is compiled twice. build.rs compiles it with `cfg(thalweg_object)` into a shared object
//! that needs no other: no libc, no symbol from elsewhere. The library around it carries that object
//! ([`object`]), writes its choice ([`choice`]) and reads what it counted ([`counts`]).
//!
//! In the object everything happens inside other people's programs: raw system calls only, errno
//! untouched, no allocation, no lock, nothing that could call memcpy.
#![cfg_attr(thalweg_object, no_std, no_builtins)]
#![cfg_attr(not(thalweg_object), warn(missing_docs))]

pub mod choice;
#[cfg(not(thalweg_object))]
pub mod counts;
pub mod layout;

macro_rules! of_the_object {
    ($($module:ident),*) => {$(
        // The library compiles it too, for clippy and the unit tests.
        #[cfg_attr(not(thalweg_object), allow(dead_code))]
        mod $module;
    )*};
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
of_the_object!(counting, dispatch, early, environ, exports, next, raw, start);

/// The shared object, as bytes of a file; or why this build has none.
#[cfg(not(thalweg_object))]
pub fn object() -> Result<&'static [u8], &'static str> {
    const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));
    const MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/missing.txt"));
    if MISSING.is_empty() { Ok(OBJECT) } else { Err(MISSING) }
}

#[cfg(thalweg_object)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    raw::abort()
}
