//! Selection of the parts of the sources to copy.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_core::shown;
use thalweg_tree::{CopyOptions, Filter};

use super::CopyArgs;
use crate::exit::{CommandFailure, Exit};

mod names;
pub mod patterns;

/// Combined effect of `--exclude`, `--exclude-from` and `--files-from`.
pub struct SourceSelection {
    filter: Option<Arc<dyn Filter>>,
    /// With `--files-from`: the single SRC, and the listed paths below it.
    names: Option<(PathBuf, Vec<PathBuf>)>,
}

impl SourceSelection {
    pub fn of(
        args: &CopyArgs,
        sources: &[PathBuf],
        destination: &Path,
    ) -> Result<Self, CommandFailure> {
        let usage = |message: &str| Err(CommandFailure::new(Exit::Usage, message));
        let chosen = &args.chosen;
        let is_dash = |path: &&Path| path.as_os_str() == "-";
        let operands = || sources.iter().map(PathBuf::as_path).chain([destination]);
        if chosen.is_part() && operands().any(|path| is_dash(&path)) {
            return usage(
                "--exclude and --files-from cannot be used with standard input or output",
            );
        }
        let lists = chosen.exclude_from.iter().chain(&chosen.files_from).map(PathBuf::as_path);
        if lists.filter(is_dash).count() > 1 {
            return usage("--exclude-from and --files-from cannot both read standard input");
        }
        let filter = patterns::of(chosen)?;
        let Some(list) = &chosen.files_from else { return Ok(Self { filter, names: None }) };
        let [folder] = sources else {
            return usage("--files-from requires a single SRC, the directory of the listed files");
        };
        let there = std::fs::metadata(folder);
        if !there
            .map_err(|e| CommandFailure::of_io("stat", &shown(folder).to_string(), &e))?
            .is_dir()
        {
            let message = format!("--files-from: '{}': not a directory", shown(folder));
            return Err(CommandFailure::new(Exit::Usage, message));
        }
        let names = names::of(list, args, folder)?;
        Ok(Self { filter, names: Some((folder.clone(), names)) })
    }

    /// Sets the selection in the options, and returns the sources to copy.
    pub fn into_options(self, sources: Vec<PathBuf>, options: &mut CopyOptions) -> Vec<PathBuf> {
        options.filter = self.filter;
        let Some((folder, names)) = self.names else { return sources };
        options.inside = Some(folder);
        names
    }
}
