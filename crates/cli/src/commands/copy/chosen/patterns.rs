//! `--exclude` and `--exclude-from`: patterns as in .gitignore.

use std::{os::unix::ffi::OsStrExt, sync::Arc};
use thalweg_tree::{ExcludePatterns, Filter};

use super::lines::ListFile;
use crate::{commands::copy::args::FilterArgs, exit::CommandFailure};

/// Returns the filter, if any pattern was given.
pub fn of(chosen: &FilterArgs) -> Result<Option<Arc<dyn Filter>>, CommandFailure> {
    let mut patterns = ExcludePatterns::default();
    for path in &chosen.exclude_from {
        let list = ListFile::read(path, chosen.from0)?;
        if chosen.from0 {
            list.lines().for_each(|(_, line)| patterns.add_line(line));
        } else {
            patterns.add_file(list.bytes());
        }
    }
    for pattern in &chosen.exclude {
        patterns.add(pattern.as_bytes());
    }
    Ok((!patterns.is_empty()).then(|| Arc::new(patterns) as Arc<dyn Filter>))
}
