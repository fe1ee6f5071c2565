//! Refuses two sources with one name, because each would replace or delete entries of the other.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::OsString,
    path::{Path, PathBuf},
};
use thalweg_core::shown;

use crate::{Error, Event, Events, identity::Id, names::cut};

/// Returns the sources that become entries of a destination, without repetitions. Returns an error if two different
/// entries have one name.
pub(super) fn distinct(sources: &[PathBuf], events: &dyn Events) -> Result<Vec<PathBuf>, Error> {
    let mut first: HashMap<OsString, (Option<Id>, &Path)> = HashMap::new();
    let mut found = Vec::new();
    for source in sources {
        let (above, name) = cut(source);
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let place = rustix::fs::stat(above).ok().map(|stat| Id::of(&stat));
        match first.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert((place, source));
                found.push(source.clone());
            }
            Entry::Occupied(entry) if place.is_some() && entry.get().0 == place => {
                events.event(&Event::NamedTwice { source });
            }
            Entry::Occupied(entry) => {
                let (one, other) = (shown(entry.get().1), shown(source));
                let why =
                    format!("'{one}' and '{other}' would have the same name in the destination");
                return Err(Error::Usage(why));
            }
        }
    }
    Ok(found)
}
