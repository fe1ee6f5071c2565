//! The settings of glibc. They affect its internal copies, which a preloaded object does not reach.
//!
//! No size is hard-coded here: the thresholds are set to the cache sizes of this machine.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fmt::Write,
    fs::File,
    io::{Read, Seek},
    path::Path,
    process::{Command, Stdio},
};
use thalweg_core::cadence::HANG;
use thalweg_sys::host::{Cache, caches};

use super::arms::{SettingKind, TrialSetting};
use thalweg_measure::{arms::command::wait, schedule::SampleFailure};

pub(crate) const MOVSB: &str = "glibc.cpu.x86_rep_movsb_threshold";
pub(crate) const STREAM: &str = "glibc.cpu.x86_non_temporal_threshold";

/// Maximum bytes of a loader's output. A longer output is not a list of tunables.
const MOST_LISTED: u64 = 1 << 20;

/// A tunable as listed by its loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tunable {
    pub name: String,
    /// The value for a process that starts now.
    pub now: u64,
    pub least: u64,
    pub most: u64,
}

/// Returns arms (compared variants) that set the thresholds to cache sizes, or the reason why there are none.
pub fn usual(loader: &Path) -> Result<Vec<TrialSetting>, String> {
    let listed = listed(loader)?;
    let arms = at_caches(&listed, caches());
    if arms.is_empty() {
        return Err(format!(
            "{}: no setting to try: the threshold of each cache size is already in effect, or outside its limits",
            loader.display()
        ));
    }
    Ok(arms)
}

fn at_caches(listed: &[Tunable], caches: &[Cache]) -> Vec<TrialSetting> {
    let mut arms: Vec<TrialSetting> = Vec::new();
    for (tunable, short) in [(MOVSB, "movsb"), (STREAM, "stream")] {
        let Some(tunable) = listed.iter().find(|t| t.name == tunable) else { continue };
        for cache in caches {
            // The string copy `rep movsb` may already win for sizes that fit into an outer cache. Non-temporal stores
            // bypass the caches, so they can win only for sizes beyond level 2 or 3.
            let fits = if short == "movsb" { cache.level <= 2 } else { cache.level >= 2 };
            let size = cache.bytes;
            if fits && size != tunable.now && (tunable.least..=tunable.most).contains(&size) {
                let name = format!("{short}-above-L{}", cache.level);
                let text = format!("{}={size}", tunable.name);
                arms.push(TrialSetting { name, kind: SettingKind::Tunables { text } });
            }
        }
    }
    arms
}

/// Runs a loader to list its tunables.
pub(crate) fn listed(loader: &Path) -> Result<Vec<Tunable>, String> {
    let name = loader.display();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    // The output goes to a memfd instead of a pipe. The program might not be a loader, and it must not block or flood
    // this process.
    let memory = memfd_create(c"tunables", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut memory = File::from(memory);
    let mut command = Command::new(loader);
    command.arg("--list-tunables").stdin(Stdio::null()).stderr(Stdio::null());
    let child = command.stdout(memory.try_clone().map_err(failed)?).spawn().map_err(failed)?;
    if let Err(SampleFailure::Unfit(unfit)) = wait(child, Some(HANG), &|| Ok(())) {
        return Err(format!("{name}: {}", unfit.reason));
    }
    let mut text = Vec::new();
    memory
        .rewind()
        .and_then(|()| memory.take(MOST_LISTED).read_to_end(&mut text))
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let tunables: Vec<Tunable> = text.lines().filter_map(read).collect();
    if tunables.is_empty() {
        return Err(format!("{name} lists no tunables: it does not belong to glibc 2.33 or later"));
    }
    Ok(tunables)
}

/// Parses a line like `glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffffffffffffffff)`.
fn read(line: &str) -> Option<Tunable> {
    let (name, rest) = line.split_once(": ")?;
    let (now, rest) = rest.split_once(" (min: ")?;
    let (least, most) = rest.strip_suffix(')')?.split_once(", max: ")?;
    let number = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    Some(Tunable {
        name: name.to_owned(),
        now: number(now)?,
        least: number(least)?,
        most: number(most)?,
    })
}

/// Returns an arm for settings given by the user.
pub fn given(text: &str) -> Result<TrialSetting, String> {
    let is_one = |part: &str| {
        part.split_once('=').is_some_and(|(name, value)| name.contains('.') && !value.is_empty())
    };
    if !text.split(':').all(is_one) {
        return Err(format!("'{text}' is not of the form glibc.cpu.NAME=VALUE[:NAME=VALUE...]"));
    }
    let mut name = String::new();
    for part in text.split(':') {
        let short = part.rsplit_once('.').map_or(part, |(_, short)| short);
        let _ = write!(name, "{}{short}", if name.is_empty() { "" } else { ":" });
    }
    Ok(TrialSetting { name, kind: SettingKind::Tunables { text: text.to_owned() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunable(name: &str, now: u64) -> Tunable {
        Tunable { name: name.to_owned(), now, least: 0x200, most: u64::MAX }
    }

    #[test]
    fn the_loaders_lines_are_read() {
        let line = "glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffffffffffffffff)";
        assert_eq!(read(line), Some(tunable(MOVSB, 0x840)));
        for line in ["", "glibc.cpu.x86_ibt:", "a: 1 (min: 2, max: 3)", "a: 0x1 (min: 0x2"] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn thresholds_become_cache_sizes_where_that_changes_them() {
        let caches = [(1, 48 << 10), (2, 1 << 20), (3, 32 << 20)];
        let caches = caches.map(|(level, bytes)| Cache { level, bytes });
        let arms = at_caches(&[tunable(MOVSB, 1 << 20), tunable(STREAM, 5)], &caches);
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["movsb-above-L1", "stream-above-L2", "stream-above-L3"]);
        let text = SettingKind::Tunables { text: format!("{MOVSB}=49152") };
        assert_eq!(arms[0].kind, text);
        assert!(at_caches(&[], &caches).is_empty());
    }

    #[test]
    fn a_loader_that_knows_no_tunables_says_so() {
        assert!(usual(Path::new("/bin/true")).unwrap_err().contains("lists no tunables"));
        assert!(usual(Path::new("/no/such")).unwrap_err().contains("No such file"));
    }

    #[test]
    fn settings_by_hand_have_a_form() {
        let arm = given("glibc.cpu.x86_rep_movsb_threshold=4096:glibc.malloc.check=3").unwrap();
        assert_eq!(arm.name, "x86_rep_movsb_threshold=4096:check=3");
        for text in ["", "x", "glibc.cpu.x=", "a=b", "glibc.cpu.x=1:"] {
            assert!(given(text).is_err(), "{text}");
        }
    }
}
