//! `--sums`: digests from a list.

use thalweg_core::shown;
use thalweg_serve::client::{DigestList, FetchError, FetchOptions, FetchUrl};

use super::{
    FetchArgs,
    args::{is_url, parse_url},
    failure,
};
use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
};

/// Reads the list from a file or a server.
pub fn read(
    args: &FetchArgs,
    options: &FetchOptions,
) -> Result<Option<DigestList>, CommandFailure> {
    let Some(from) = &args.sums else { return Ok(None) };
    let name = shown(from).to_string();
    let failed = |error: FetchError| failure(&error, &format!("--sums '{name}': "));
    if is_url(from) {
        let target = parse_url(from).map_err(failed)?;
        return DigestList::fetch(&target, options, &|| interrupt::check())
            .map(Some)
            .map_err(failed);
    }
    let text = std::fs::read(from).map_err(|error| CommandFailure::of_io("read", &name, &error))?;
    Ok(Some(DigestList::parse(&text, &name)))
}

/// Adds the digest from the list for this file to the options.
pub fn expecting(
    sums: Option<&DigestList>,
    target: &FetchUrl,
    options: &FetchOptions,
) -> Result<FetchOptions, CommandFailure> {
    let mut options = options.clone();
    if let Some(sums) = sums {
        let name = target.name().ok_or_else(|| {
            CommandFailure::new(
                Exit::Usage,
                format!("'{target}': the URL contains no file name to look up in --sums"),
            )
        })?;
        options.expected.push(sums.of(&name).map_err(|error| failure(&error, ""))?);
    }
    Ok(options)
}
