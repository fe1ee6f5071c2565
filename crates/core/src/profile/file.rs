//! The file format of a profile. Each cell (a measurement) has its own line, which begins with the source and the sink.
//! A command that moves files can therefore skip the lines about memory without parsing them.

use std::{
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
};

use super::{Profile, ProfileError, SCHEMA};
use crate::{
    failed::quoted,
    trusted_file::{self, TrustError},
};

// A profile with every cell of every pair stays far below this; a larger file is not a profile.
const LARGEST_FILE: u64 = 16 << 20;
// The beginning of a cell's line.
const BEGINNING: &str = r#"{"source":""#;

impl Profile {
    /// Returns the path of the profile: `$THALWEG_PROFILE`, or `thalweg/profile.json` in the XDG state directory.
    /// `None` if neither is set and there is no home directory.
    pub fn default_path() -> Option<PathBuf> {
        let env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        env("THALWEG_PROFILE").or_else(|| {
            let state = env("XDG_STATE_HOME").filter(|p| p.is_absolute());
            let state = state.or_else(|| env("HOME").map(|home| home.join(".local/state")))?;
            Some(state.join("thalweg/profile.json"))
        })
    }

    /// Reads a profile; `Ok(None)` if the file does not exist. A file that another user may have created or changed is
    /// [`ProfileError::Invalid`].
    pub fn load(path: &Path) -> Result<Option<Self>, ProfileError> {
        let text = read(path)?;
        text.map(|text| Self::parse(&text).map_err(|reason| invalid(path, reason))).transpose()
    }

    /// Reads only the cells with a wanted source and sink, which takes a fraction of the time. The result must not be
    /// [saved](Self::save). If another program has formatted the file, the result may contain all cells.
    pub fn load_between(
        path: &Path,
        wanted: &dyn Fn(&str, &str) -> bool,
    ) -> Result<Option<Self>, ProfileError> {
        let parse = |text: Vec<u8>| {
            Self::parse(&between(&text, wanted)).map_err(|reason| invalid(path, reason))
        };
        read(path)?.map(parse).transpose()
    }

    /// Reads a profile from its text and checks every number in it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let profile: Self = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if profile.schema != SCHEMA {
            return Err(format!("unsupported schema {} (supported: {SCHEMA})", profile.schema));
        }
        for (n, cell) in profile.cells.iter().enumerate() {
            cell.check().map_err(|reason| format!("cells[{n}]: {reason}"))?;
        }
        Ok(profile)
    }

    /// Writes the profile atomically. Fails in a directory of another user.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let text = self.text().map_err(|e| failed(path, "write")(e.into()))?;
        trusted_file::write(path, text.as_bytes()).map_err(|error| unusable(path, error))
    }

    /// Checks, before a measurement begins, that the path is not in a directory of another user.
    pub fn check_place(path: &Path) -> Result<(), ProfileError> {
        match trusted_file::check_place(path) {
            Err(error @ TrustError::Untrusted { .. }) => Err(unusable(path, error)),
            // Other errors are not reported here. The later write fails for the same reason, but the measurement has
            // been shown by then.
            Ok(()) | Err(TrustError::Io { .. }) => Ok(()),
        }
    }

    fn text(&self) -> serde_json::Result<String> {
        let Self { schema, machine, cells } = self;
        let lines: Vec<String> =
            cells.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
        let machine = serde_json::to_string(machine)?;
        let cells = lines.join(",\n");
        Ok(format!(
            "{{\n\"schema\": {schema},\n\"machine\": {machine},\n\"cells\": [\n{cells}\n]\n}}\n"
        ))
    }
}

/// Converts the error for a profile, or its directory, that another user may have created or changed.
pub(super) fn unusable(path: &Path, error: TrustError) -> ProfileError {
    match error {
        TrustError::Io { path, call, source } => ProfileError::Io { path, call, source },
        TrustError::Untrusted { path: which, why } => {
            let what = if which == path { "the file".to_owned() } else { quoted(&which) };
            invalid(path, format!("{what} {why}; hint: use sudo -H, or set XDG_STATE_HOME"))
        }
    }
}

fn failed(path: &Path, call: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
    move |source| ProfileError::Io { path: path.to_owned(), call, source }
}

fn invalid(path: &Path, reason: String) -> ProfileError {
    ProfileError::Invalid { path: path.to_owned(), reason }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ProfileError> {
    let file = trusted_file::open(path).map_err(|error| unusable(path, error))?;
    let Some(file) = file else { return Ok(None) };
    let len = file.metadata().map_or(0, |meta| meta.len().min(LARGEST_FILE));
    let mut text = Vec::with_capacity(len as usize + 1);
    file.take(LARGEST_FILE + 1).read_to_end(&mut text).map_err(failed(path, "read"))?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(invalid(path, format!("the file has more than {LARGEST_FILE} bytes")));
    }
    Ok(Some(text))
}

/// Returns the text without the lines of cells that are not wanted.
fn between(text: &[u8], wanted: &dyn Fn(&str, &str) -> bool) -> Vec<u8> {
    let (mut kept, mut rest, mut is_behind_cell) = (Vec::new(), text, false);
    while let (from, Ok(len @ 1..)) = (rest, rest.skip_until(b'\n')) {
        let line = from[..len].strip_suffix(b"\n").unwrap_or(&from[..len]);
        let cell = cell(line);
        if cell.and_then(ends).is_some_and(|(source, sink)| !wanted(source, sink)) {
            continue;
        }
        // The file needs a comma between two cells, and must have none after the last kept one.
        if is_behind_cell && cell.is_some() {
            kept.push(b',');
        }
        kept.extend_from_slice(cell.unwrap_or(line));
        kept.push(b'\n');
        is_behind_cell = cell.is_some();
    }
    kept
}

/// Returns the cell in this line as [`Profile::save`] writes it, without the trailing comma.
fn cell(line: &[u8]) -> Option<&[u8]> {
    let cell = line.strip_suffix(b",").unwrap_or(line);
    (cell.starts_with(BEGINNING.as_bytes()) && cell.ends_with(b"}")).then_some(cell)
}

/// Returns the endpoints of a cell; `None` if a name contains an escape or the line has several cells.
fn ends(cell: &[u8]) -> Option<(&str, &str)> {
    let (source, rest) = str::from_utf8(cell).ok()?.strip_prefix(BEGINNING)?.split_once('"')?;
    let (sink, rest) = rest.strip_prefix(r#","sink":""#)?.split_once('"')?;
    let is_plain = !source.contains('\\') && !sink.contains('\\') && !rest.contains(BEGINNING);
    is_plain.then_some((source, sink))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Cell, cell};
    use std::fs;

    fn into_files(_: &str, sink: &str) -> bool {
        sink.starts_with("file")
    }

    fn saved(sinks: &[&str]) -> (tempfile::TempDir, PathBuf, Profile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/profile.json");
        let mut profile = Profile::new();
        for sink in sinks {
            let cell = cell::tests::cell("splice", 1 << 20, 0.8);
            profile.cells.push(Cell { sink: (*sink).into(), ..cell });
        }
        profile.save(&path).unwrap();
        (folder, path, profile)
    }

    #[test]
    fn a_profile_survives_its_file() {
        for sinks in [&[][..], &["file:ext4"], &["memory", "file:a\"b\\,{}", "file:\n"]] {
            let (_folder, path, profile) = saved(sinks);
            assert_eq!(Profile::load(&path).unwrap(), Some(profile));
        }
        assert!(matches!(Profile::load(Path::new("/no/such/profile")), Ok(None)));
    }

    #[test]
    fn a_part_is_what_is_wanted_of_the_whole_wherever_it_lies() {
        let all = ["file:x", "memory", "file:y"];
        for mut sinks in [vec![], vec!["memory"], vec!["memory", "cold"], vec!["file:\"", "memory"]]
        {
            for n in 0..8 {
                sinks.extend(
                    all.iter()
                        .enumerate()
                        .filter(|(bit, _)| n >> bit & 1 == 1)
                        .map(|(_, sink)| *sink),
                );
                let (_folder, path, mut profile) = saved(&sinks);
                profile.cells.retain(|cell| into_files(&cell.source, &cell.sink));
                let part = Profile::load_between(&path, &into_files).unwrap();
                assert_eq!(part, Some(profile), "{sinks:?}");
            }
        }
    }

    #[test]
    fn a_profile_in_another_layout_is_read_whole() {
        let (folder, _, profile) = saved(&["memory", "file:x"]);
        let path = folder.path().join("pretty");
        fs::write(&path, serde_json::to_vec_pretty(&profile).unwrap()).unwrap();
        let part = Profile::load_between(&path, &into_files).unwrap();
        assert_eq!(part, Some(profile.clone()));
        fs::write(&path, serde_json::to_vec(&profile).unwrap()).unwrap();
        assert_eq!(Profile::load_between(&path, &into_files).unwrap(), Some(profile.clone()));
        // Two cells in one line; the first is not wanted.
        fs::write(&path, profile.text().unwrap().replace("},\n", "},")).unwrap();
        assert_eq!(Profile::load_between(&path, &into_files).unwrap(), Some(profile));
    }

    #[test]
    fn only_a_regular_file_of_a_sane_size_is_a_profile() {
        for (path, why) in [("/dev/zero", "is not a regular file"), ("/", "EISDIR")] {
            let refused = Profile::load(Path::new(path)).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        fs::File::create(&path).unwrap().set_len(LARGEST_FILE + 1).unwrap();
        let long = Profile::load(&path).unwrap_err().to_string();
        assert!(long.contains("more than"), "{long}");
    }
}
