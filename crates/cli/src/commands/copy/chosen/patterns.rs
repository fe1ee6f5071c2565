//! `--exclude` and `--exclude-from`: patterns as in .gitignore.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    sync::Arc,
};
use thalweg_tree::{ExcludePatterns, Filter};

use crate::{args::ListFile, commands::copy::args::FilterArgs, exit::CommandFailure};

/// Returns the patterns. The last one that matches decides.
pub fn list(chosen: &FilterArgs) -> Result<Vec<OsString>, CommandFailure> {
    let mut patterns = Vec::new();
    for path in &chosen.exclude_from {
        let list = ListFile::read(path, chosen.from0)?;
        let mut add = |line: &[u8]| patterns.push(OsStr::from_bytes(line).to_owned());
        if chosen.from0 {
            list.lines().filter_map(|(_, line)| ExcludePatterns::in_line(line)).for_each(&mut add);
        } else {
            ExcludePatterns::in_file(list.bytes()).for_each(&mut add);
        }
    }
    patterns.extend(chosen.exclude.iter().cloned());
    Ok(patterns)
}

/// Returns the filter, if any pattern was given.
pub fn of(chosen: &FilterArgs) -> Result<Option<Arc<dyn Filter>>, CommandFailure> {
    let mut patterns = ExcludePatterns::default();
    list(chosen)?.iter().for_each(|pattern| patterns.add(pattern.as_bytes()));
    Ok((!patterns.is_empty()).then(|| Arc::new(patterns) as Arc<dyn Filter>))
}
