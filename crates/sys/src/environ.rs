//! The environment of this process, read without allocating.

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    // POSIX: an array of `NAME=value`, terminated by a null pointer.
    static environ: *const *const c_char;
}

/// Returns `true` if the name of any variable starts with `prefix`. [`std::env::vars_os`] would copy all variables.
pub fn has_name_with(prefix: &str) -> bool {
    // SAFETY: only functions such as setenv change the pointer. Rust's `set_var` is unsafe: its caller guarantees that
    // no other thread reads the environment.
    let mut next = unsafe { environ };
    // `clearenv` leaves a null pointer.
    while !next.is_null() {
        // SAFETY: `next` is inside the array, which ends with a null pointer.
        let variable = unsafe { *next };
        if variable.is_null() {
            return false;
        }
        // SAFETY: each element is a C string.
        if unsafe { CStr::from_ptr(variable) }.to_bytes().starts_with(prefix.as_bytes()) {
            return true;
        }
        // SAFETY: this element was not the null pointer at the end, so another element follows.
        next = unsafe { next.add(1) };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_start_as_the_standard_library_finds_them() {
        for (name, _) in std::env::vars_os() {
            let name = name.to_str().unwrap();
            assert!(has_name_with(name) && has_name_with(&name[..1]), "{name}");
        }
        assert!(!has_name_with("NO_SUCH_VARIABLE_"));
    }
}
