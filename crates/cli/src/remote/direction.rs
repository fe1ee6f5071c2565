//! Operands of a command that name files on another machine.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt::Display,
    path::{Path, PathBuf},
};
use thalweg_core::failed::quoted;
use thalweg_serve::remote::RemoteName;

use crate::{
    exit::{CommandFailure, Exit, worse},
    interrupt,
    output::text::report,
};

/// The sources, and the side that is on another machine.
pub enum Direction<'a> {
    /// Copies from another machine to a local path.
    Pull(Vec<RemoteName>),
    /// Copies from local paths to another machine.
    Push(RemoteName, &'a [PathBuf]),
}

impl<'a> Direction<'a> {
    /// Parses the names. Returns `None` if all of them are on this machine.
    pub fn of(sources: &'a [PathBuf], destination: &Path) -> Result<Option<Self>, CommandFailure> {
        let usage = |why: String| CommandFailure::new(Exit::Usage, why);
        let parse = |path: &Path| {
            RemoteName::parse(path.as_os_str()).map_err(|error| usage(error.to_string()))
        };
        let names = sources.iter().map(|path| parse(path)).collect::<Result<Vec<_>, _>>()?;
        match parse(destination)? {
            None if names.iter().all(Option::is_none) => Ok(None),
            None if names.iter().all(Option::is_some) => {
                Ok(Some(Self::Pull(names.into_iter().flatten().collect())))
            }
            None => Err(usage("some sources are remote and others are local".to_owned()).hint(
                "use one command for each machine; write ./NAME for a local name with a colon",
            )),
            Some(_) if names.iter().any(Option::is_some) => {
                Err(usage("source and destination cannot both be remote".to_owned())
                    .hint("run thalweg on one of the two machines"))
            }
            Some(name) => Ok(Some(Self::Push(name, sources))),
        }
    }
}

/// Fails if two sources have one name in the destination, because their copies would replace each other. Each source is
/// given as its name there and as the user wrote it.
pub fn refuse_same_names<'n, T: Display>(
    sources: impl Iterator<Item = (&'n OsStr, T)>,
) -> Result<(), CommandFailure> {
    let mut first: HashMap<&OsStr, T> = HashMap::new();
    for (name, given) in sources {
        if let Some(other) = first.get(name) {
            let why =
                format!("'{other}' and '{given}' would have the same name in the destination");
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        first.insert(name, given);
    }
    Ok(())
}

/// Returns the failure for a destination that is not a directory, although it must be one.
pub fn not_a_directory(destination: &Path) -> CommandFailure {
    CommandFailure::new(Exit::Usage, format!("{}: not a directory", quoted(destination)))
}

/// Copies each source. With several sources, prints each failure and continues. With a single source, returns its
/// failure.
pub fn one_by_one<T>(
    all: &[T],
    copy: impl Fn(&T) -> Result<Exit, CommandFailure>,
) -> Result<Exit, CommandFailure> {
    if let [one] = all {
        return copy(one);
    }
    let mut worst = Exit::Done;
    for one in all {
        if interrupt::is_interrupted() {
            return Ok(worse(worst, Exit::Failed));
        }
        worst = worse(worst, copy(one).unwrap_or_else(|failure| report(&failure)));
    }
    Ok(worst)
}
