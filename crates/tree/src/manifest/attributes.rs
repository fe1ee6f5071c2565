//! The attributes file beside a manifest. It has one line of JSON for every entry below a directory, with the
//! attributes that a copy can preserve. The attributes are in a separate file, because tools that read the hashes do
//! not tolerate other lines (`b3sum` 1.2).

use rustix::fs::{AtFlags, FileType, fstatfs, major, minor, readlinkat, statat};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    path::{Path, PathBuf},
};
use thalweg_core::Cancelled;

use super::{hash::ids, make::task};
use crate::{
    AttributeDifferences, Error, Events,
    compare::{
        Comparison, DifferenceKind, Finding,
        attributes::{names, xattrs_of},
        run::{self, CompareRun, SideFailure},
    },
    fs::walk::{Kinds, Visit, VisitedEntry, WalkShared, walk},
    holder::Holder,
    identity::{Id, kind},
    names::os_bytes,
    threads::for_reading,
    times::{self, Resolution},
};

/// The first line of the file.
const HEAD: &str = "{\"thalweg_attributes\":1}";

/// The attributes of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributesEntry {
    #[serde(rename = "type")]
    kind: AttributesKind,
    path: String,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    nanos: u32,
    /// The resolution of times on the file system; `None` if it is unknown, as for an entry of an attributes file.
    #[serde(skip)]
    resolution: Option<Resolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, String>,
    /// The first path of the file, if the file has several names and this is not the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    same_as: Option<String>,
}

impl AttributesEntry {
    fn has_time_of(&self, was: &Self) -> bool {
        let [stored, wanted] = [self, was].map(|entry| (entry.mtime, entry.nanos));
        times::order(stored, wanted, || self.resolution).is_eq()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AttributesKind {
    File,
    Folder,
    Link,
    Fifo,
    Socket,
    Block,
    Character,
}

/// The last line. If it is missing, the file was truncated.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributesEnd {
    entries: usize,
}

/// The attributes of all entries below a directory, or of one file, by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TreeAttributes(BTreeMap<Vec<u8>, AttributesEntry>);

impl TreeAttributes {
    /// Returns the path of the attributes file of a manifest.
    pub fn beside(manifest: &Path) -> PathBuf {
        let mut name = manifest.as_os_str().to_owned();
        name.push(".attributes");
        name.into()
    }

    /// Reads the attributes of a tree, without the files in `own`. `jobs` is the number of threads; 0 means one per
    /// core. Entries that could not be read are errors in the returned [`Comparison`].
    pub fn of(
        path: &Path,
        jobs: usize,
        own: &[&Path],
        events: &dyn Events,
    ) -> Result<(Self, Comparison), Error> {
        let looking = Looking { run: CompareRun::new(events), own: ids(own) };
        let mut hands = walk(&looking, [task(path)?], for_reading(jobs));
        let all: BTreeMap<_, _> = hands.iter_mut().flat_map(|hand| hand.met.drain(..)).collect();
        let mut firsts = HashMap::new();
        let mut entries = BTreeMap::new();
        for (path, (mut entry, file)) in all {
            if let Some(file) = file {
                let first: &mut String = firsts.entry(file).or_insert_with(|| entry.path.clone());
                entry.same_as = Some(first.clone()).filter(|first| *first != entry.path);
            }
            entries.insert(path, entry);
        }
        let hands = hands.into_iter().map(|hand| hand.run);
        Ok((Self(entries), looking.run.conclude(hands.collect())))
    }

    /// Returns the contents of the file.
    pub fn text(&self) -> Vec<u8> {
        let mut text = format!("{HEAD}\n");
        let mut add = |line: serde_json::Result<String>| {
            let _ = writeln!(text, "{}", line.unwrap_or_default());
        };
        self.0.values().for_each(|entry| add(serde_json::to_string(entry)));
        add(serde_json::to_string(&AttributesEnd { entries: self.0.len() }));
        text.into_bytes()
    }

    /// Parses the file. An error contains the number of the invalid line.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let wrong = |number: usize, why: &str| {
            Error::Usage(format!("line {number} of the attributes file: {why}"))
        };
        let mut lines = (1..).zip(text.split(|byte| *byte == b'\n'));
        if lines.next().is_none_or(|(_, line)| line != HEAD.as_bytes()) {
            return Err(wrong(1, &format!("expected '{HEAD}'")));
        }
        let mut entries = BTreeMap::new();
        for (number, line) in lines {
            if let Ok(end) = serde_json::from_slice::<AttributesEnd>(line) {
                let count = entries.len();
                return if end.entries == count {
                    Ok(Self(entries))
                } else {
                    Err(wrong(
                        number,
                        &format!(
                            "the file has {count} entries, but this line states {}",
                            end.entries
                        ),
                    ))
                };
            }
            let entry: AttributesEntry = match serde_json::from_slice(line) {
                Ok(entry) => entry,
                Err(_) if line.is_empty() => {
                    return Err(wrong(number, "the file is truncated: its last line is missing"));
                }
                Err(error) => return Err(wrong(number, &error.to_string())),
            };
            let path =
                decoded(&entry.path).ok_or_else(|| wrong(number, "the entry has no valid path"))?;
            entries.insert(path, entry);
        }
        Err(wrong(1, "the file is truncated: its last line is missing"))
    }

    /// Compares with `here`, the attributes of `destination`. Reports the differences and counts them in `found`. A
    /// file that exists on one side only is not reported, because the comparison of hashes reports it.
    pub fn check(
        &self,
        here: &Self,
        destination: &Path,
        ignore_extra: bool,
        events: &dyn Events,
        found: &mut Comparison,
    ) {
        // A manifest of a single file is compared even if the file has another name here.
        if let ([(_, was)], [(_, is)], false) = (&*self.all(), &*here.all(), destination.is_dir()) {
            return compare(was, is, destination, events, found);
        }
        let path = |name: &[u8]| destination.join(os_bytes(name));
        for (name, entry) in &self.0 {
            match here.0.get(name) {
                Some(is) => compare(entry, is, &path(name), events, found),
                None if entry.kind == AttributesKind::File => {}
                None => {
                    found.missing += 1;
                    let (path, kind) = (&path(name), entry.kind.file_type());
                    events.finding(&Finding::Missing { path, kind });
                }
            }
        }
        for (name, entry) in here.0.iter().filter(|(name, _)| !self.0.contains_key(*name)) {
            if entry.kind != AttributesKind::File && !ignore_extra {
                found.extra += 1;
                let (path, kind) = (&path(name), entry.kind.file_type());
                events.finding(&Finding::Extra { path, kind });
            }
        }
        found.not_named = 0;
    }

    fn all(&self) -> Vec<(&Vec<u8>, &AttributesEntry)> {
        self.0.iter().collect()
    }
}

fn compare(
    was: &AttributesEntry,
    is: &AttributesEntry,
    path: &Path,
    events: &dyn Events,
    found: &mut Comparison,
) {
    let how = if was.kind != is.kind {
        // If a file was expected, the comparison of hashes has already reported the entry.
        (was.kind != AttributesKind::File)
            .then(|| DifferenceKind::Kind(was.kind.file_type(), is.kind.file_type()))
    } else if was.target != is.target {
        Some(DifferenceKind::Target)
    } else if was.device != is.device {
        Some(DifferenceKind::Device)
    } else {
        None
    };
    let is_alike = how.is_none() && was.kind == is.kind;
    if let Some(how) = how {
        found.differ += 1;
        events.finding(&Finding::Differs { path, how });
    }
    if !is_alike {
        return;
    }
    let differs = AttributeDifferences {
        mode: was.kind != AttributesKind::Link && was.mode != is.mode,
        owner: was.uid != is.uid,
        group: was.gid != is.gid,
        time: !is.has_time_of(was),
        xattrs: was.xattrs != is.xattrs,
        ..AttributeDifferences::default()
    };
    let differing = names(differs, was.same_as != is.same_as);
    if !differing.is_empty() {
        found.attributes += 1;
        events.finding(&Finding::Differs { path, how: DifferenceKind::Attributes(differing) });
    } else if !matches!(was.kind, AttributesKind::File | AttributesKind::Folder) {
        found.others += 1;
    }
}

impl AttributesKind {
    fn of(kind: FileType) -> Option<Self> {
        Some(match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::BlockDevice => Self::Block,
            FileType::CharacterDevice => Self::Character,
            FileType::Unknown => return None,
        })
    }

    fn file_type(self) -> FileType {
        match self {
            Self::File => FileType::RegularFile,
            Self::Folder => FileType::Directory,
            Self::Link => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::Block => FileType::BlockDevice,
            Self::Character => FileType::CharacterDevice,
        }
    }
}

/// A walk that reads attributes but no contents.
struct Looking<'l> {
    run: CompareRun<'l>,
    own: Vec<Id>,
}

struct AttributesThread {
    run: run::CompareThread,
    met: Vec<(Vec<u8>, FoundEntry)>,
}

/// The entry of a name, and the identity of its file if it has several names.
type FoundEntry = (AttributesEntry, Option<Id>);

impl Visit for Looking<'_> {
    type Hand = AttributesThread;
    type Work = ();

    fn hand(&self) -> AttributesThread {
        AttributesThread { run: run::CompareThread::new(), met: Vec::new() }
    }

    fn entry(
        &self,
        _crew: &WalkShared<'_, Self>,
        hand: &mut AttributesThread,
        at: &VisitedEntry<'_>,
        _kinds: Kinds,
    ) {
        match self.look(at) {
            Ok(Some(met)) => hand.met.push((at.below_root(), met)),
            Ok(None) => {}
            Err((_, call, errno)) => self.run.failed(at.failed(1, call, errno)),
        }
    }

    fn failed(&self, error: Error) {
        self.run.failed(error);
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.run.go_on()
    }
}

impl Looking<'_> {
    fn look(&self, at: &VisitedEntry<'_>) -> Result<Option<FoundEntry>, SideFailure> {
        let Some(dir) = at.dir(1) else { return Ok(None) };
        let name = at.name(1);
        let follows = at.is_named_by_caller();
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = statat(dir, name, flags).map_err(|errno| (1, "newfstatat", errno))?;
        let Some(own_kind) =
            AttributesKind::of(kind(&stat)).filter(|_| !self.own.contains(&Id::of(&stat)))
        else {
            return Ok(None);
        };
        let target = (own_kind == AttributesKind::Link).then(|| readlinkat(dir, name, Vec::new()));
        let target = target.transpose().map_err(|errno| (1, "readlinkat", errno))?;
        let is_device = matches!(own_kind, AttributesKind::Block | AttributesKind::Character);
        let xattrs = xattrs_of(&Holder::Entry { dir, name, follows: false }, 1)?;
        let pairs = xattrs.pairs().iter();
        let has_names = stat.st_nlink > 1 && own_kind != AttributesKind::Folder;
        let entry = AttributesEntry {
            kind: own_kind,
            path: encoded(&at.below_root()),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime,
            nanos: stat.st_mtime_nsec as u32,
            resolution: Resolution::of(&stat, || fstatfs(dir)),
            target: target.map(|target| encoded(target.as_bytes())),
            device: is_device.then(|| (major(stat.st_rdev), minor(stat.st_rdev))),
            xattrs: pairs.map(|(name, value)| (encoded(name.as_bytes()), hex(value))).collect(),
            same_as: None,
        };
        Ok(Some((entry, has_names.then(|| Id::of(&stat)))))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Percent-encodes all bytes except letters, digits and `-._~/`, as in a URL.
fn encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    (!bytes.is_empty() && !bytes.contains(&0)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_read_again(name in prop::collection::vec(1_u8.., 1..40)) {
            prop_assert_eq!(decoded(&encoded(&name)), Some(name));
        }

        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let whole = [HEAD.as_bytes(), b"\n", &text].concat();
            prop_assert!(TreeAttributes::parse(&text).is_err() || text.starts_with(HEAD.as_bytes()));
            let _ = TreeAttributes::parse(&whole);
        }
    }

    #[test]
    fn what_was_cut_short_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("a b")).unwrap();
        // The text does not contain the resolution, which is determined only if the nanoseconds are a round number.
        let odd = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
        file.set_modified(odd).unwrap();
        let (all, _) = TreeAttributes::of(folder.path(), 1, &[], &()).unwrap();
        let text = all.text();
        assert_eq!(TreeAttributes::parse(&text).unwrap(), all);
        for len in 0..text.len() - 1 {
            assert!(TreeAttributes::parse(&text[..len]).is_err(), "{len} bytes");
        }
    }
}
