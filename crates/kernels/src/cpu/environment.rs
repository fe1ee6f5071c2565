//! CPU features that the environment hides.

extern crate std;

use std::{
    borrow::ToOwned, env, format, io, io::Write, os::unix::ffi::OsStrExt, string::String, vec::Vec,
};

use super::{FEATURES, VARIABLE, bits_of};

/// Returns the hidden features as bits. The error is a sentence for the user.
pub fn hidden_bits() -> Result<u32, String> {
    let Some(list) = env::var_os(VARIABLE) else { return Ok(0) };
    bits_of(list.as_bytes()).map_err(|word| {
        let names: Vec<&str> = FEATURES.iter().map(|(name, _)| *name).collect();
        let names = if names.is_empty() {
            "none on this architecture".to_owned()
        } else {
            names.join(", ")
        };
        let word = String::from_utf8_lossy(word);
        format!(
            "{VARIABLE}: {word:?} is not the name of a feature that can be hidden: write a list \
             such as -avx512f,-avx2; known: {names}"
        )
    })
}

/// Like [`hidden_bits`], for a library, which cannot refuse to run: if the list is invalid, prints an error and hides nothing.
pub fn hidden_or_shown() -> u32 {
    hidden_bits().unwrap_or_else(|error| {
        let line = format!("thalweg: {error}; no CPU features are hidden\n");
        // Not `eprintln`, which panics if standard error is a pipe without a reader. The message is then lost.
        let _ = io::stderr().write_all(line.as_bytes());
        0
    })
}

/// Returns the names of the hidden features. The error is a sentence for the user. A program calls this at its start.
pub fn hidden() -> Result<Vec<&'static str>, String> {
    let bits = hidden_bits()?;
    Ok(FEATURES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect())
}
