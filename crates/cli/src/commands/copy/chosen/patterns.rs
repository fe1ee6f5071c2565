//! `--exclude` and `--exclude-from`: patterns as in .gitignore.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc};
use thalweg_core::shown;
use thalweg_tree::Filter;

use super::lines::List;
use crate::{
    commands::copy::args::Chosen,
    exit::{Exit, Failure},
};

#[derive(Debug)]
struct Patterns(Gitignore);

impl Filter for Patterns {
    fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        self.0.matched(path, is_directory).is_ignore()
    }
}

/// The filter, if there is a pattern.
pub fn of(chosen: &Chosen) -> Result<Option<Arc<dyn Filter>>, Failure> {
    // Of the paths that are asked about nothing is to be taken away.
    let mut builder = GitignoreBuilder::new(".");
    for path in &chosen.exclude_from {
        for (place, line) in List::read(path, chosen.from0)?.lines() {
            add(&mut builder, &place, line)?;
        }
    }
    for pattern in &chosen.exclude {
        let pattern = pattern.as_bytes();
        // In a file it begins a comment.
        let escape: &[u8] = if pattern.starts_with(b"#") { b"\\" } else { b"" };
        add(&mut builder, "--exclude", &[escape, pattern].concat())?;
    }
    let patterns = builder.build();
    let patterns = patterns.map_err(|e| Failure::new(Exit::Usage, format!("--exclude: {e}")))?;
    Ok((!patterns.is_empty()).then(|| Arc::new(Patterns(patterns)) as Arc<dyn Filter>))
}

fn add(builder: &mut GitignoreBuilder, place: &str, line: &[u8]) -> Result<(), Failure> {
    let refused = |why: &str| {
        let line = shown(std::ffi::OsStr::from_bytes(line));
        Failure::new(Exit::Usage, format!("{place}: '{line}': {why}; nothing was copied"))
    };
    let text = std::str::from_utf8(line)
        .map_err(|_| refused("a pattern is UTF-8; '*' stands for other bytes"))?;
    builder.add_line(None, text).map_err(|error| refused(&error.to_string()))?;
    Ok(())
}
