//! Directories, and the mechanisms that copy files within each of them.

use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use thalweg_core::{Kind, MECHANISMS, Role, probe, scratch::ScratchSite};
use thalweg_sys::host::filesystem;

/// A directory, its file system, and the mechanisms that copy files in it.
#[derive(Debug, Serialize)]
pub struct TriedPlace {
    // A string, because JSON cannot represent arbitrary bytes.
    path: String,
    file_system: String,
    options: String,
    remote: bool,
    works: Vec<&'static str>,
    fails: Vec<PlaceRefusal>,
}

#[derive(Debug, Serialize)]
struct PlaceRefusal {
    name: &'static str,
    reason: String,
}

/// Examines the requested directory, the one for temporary files, and shared memory.
pub fn all(here: &Path) -> Vec<TriedPlace> {
    folders(here).iter().filter_map(|folder| tried(folder)).collect()
}

/// Returns these directories without duplicates.
fn folders(here: &Path) -> Vec<PathBuf> {
    let mut folders = vec![here.to_owned()];
    for usual in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        if !folders.contains(&usual) {
            folders.push(usual);
        }
    }
    folders
}

fn tried(folder: &Path) -> Option<TriedPlace> {
    let fs = std::fs::File::open(folder).ok().and_then(|open| filesystem(&open).ok())?;
    let site = ScratchSite::at(folder);
    let (mut works, mut fails) = (Vec::new(), Vec::new());
    for mechanism in MECHANISMS.iter().filter(|m| m.info().role != Role::Harness) {
        let info = mechanism.info();
        let Some(pair) = info.pair(Kind::File, Kind::File) else { continue };
        match probe::pair(*mechanism, *pair, &site) {
            Ok(()) => works.push(info.name),
            Err(unfit) => fails.push(PlaceRefusal { name: info.name, reason: unfit.reason }),
        }
    }
    Some(TriedPlace {
        path: folder.display().to_string(),
        options: fs.options().to_owned(),
        file_system: fs.name,
        remote: fs.remote,
        works,
        fails,
    })
}

/// Formats a few lines for each directory.
pub fn printed(places: &[TriedPlace]) -> String {
    let mut text = String::new();
    for place in places {
        let remote = if place.remote { ", remote" } else { "" };
        let _ =
            writeln!(text, "  {}: {}{remote} ({})", place.path, place.file_system, place.options);
        if !place.works.is_empty() {
            let _ = writeln!(text, "    works: {}", place.works.join(", "));
        }
        for refusal in &place.fails {
            let _ = writeln!(text, "    {}: {}", refusal.name, refusal.reason);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_looked_at_once() {
        let shared = Path::new("/dev/shm");
        let twice = folders(shared);
        assert_eq!(twice.iter().filter(|folder| *folder == shared).count(), 1, "{twice:?}");
    }
}
