//! The shared object that `thalweg trial` preloads into an unmodified program. It replaces memcpy, memmove, mempcpy, memset and
//! their checked variants with a chosen kernel.
//!
//! This crate is compiled twice. build.rs compiles it with `cfg(thalweg_object)` into a shared object without dependencies: no
//! libc, and no symbol from another object. The surrounding library contains that object ([`object`]), writes its choice
//! ([`choice`]) and reads its counts ([`counts`]).
//!
//! The object runs inside arbitrary programs. It therefore uses only raw system calls, leaves errno unchanged, and does not
//! allocate, lock or do anything that could call memcpy.
#![cfg_attr(thalweg_object, no_std, no_builtins)]
#![cfg_attr(not(thalweg_object), warn(missing_docs))]

pub mod choice;
#[cfg(not(thalweg_object))]
pub mod counts;
pub mod layout;

macro_rules! of_the_object {
    ($($module:ident),*) => {$(
        // The library compiles the module too, for clippy and the unit tests.
        #[cfg_attr(not(thalweg_object), allow(dead_code))]
        mod $module;
    )*};
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
of_the_object!(counting, dispatch, early, environ, exports, next, raw, start);

/// Returns the contents of the shared object, or the reason why this build has none.
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
