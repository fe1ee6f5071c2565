//! Finds the JDKs of this machine. Arms (compared variants) in Java run on them, and results name them.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

/// The directory in which Linux distributions install JDKs.
pub const USUAL: &str = "/usr/lib/jvm";

/// A directory that contains a JDK.
pub struct Jdk {
    pub home: PathBuf,
    pub release: u32,
    /// The content of the file `release`, which every JDK has: vendor and full version.
    pub facts: String,
}

impl Jdk {
    /// Returns the first of these directories that is a JDK of this release.
    pub fn find(release: u32, homes: impl IntoIterator<Item = PathBuf>) -> Option<Self> {
        homes.into_iter().filter_map(Self::at).find(|jdk| jdk.release == release)
    }

    /// Returns the JDK in this directory if it includes a compiler.
    pub fn at(home: PathBuf) -> Option<Self> {
        let facts = fs::read_to_string(home.join("release")).ok()?;
        let release = release_in(&facts)?;
        home.join("bin/javac").is_file().then_some(Self { home, release, facts })
    }
}

/// Returns, for each release, the name like `JDK 25` and the full version of the JDK that an arm would use.
pub fn jdks() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for jdk in candidates().into_iter().filter_map(Jdk::at) {
        let version = version_in(&jdk.facts).unwrap_or_default().to_owned();
        found.entry(format!("JDK {}", jdk.release)).or_insert(version);
    }
    found
}

/// Returns the version, from the line `JAVA_VERSION="25.0.3"`.
fn version_in(facts: &str) -> Option<&str> {
    let rest = facts.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    rest.split('"').next()
}

/// Returns the feature release, the first number. Java 8 and older report 1.8 and the like.
fn release_in(facts: &str) -> Option<u32> {
    let version = version_in(facts)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns directories that may contain a JDK, `JAVA_HOME` first.
pub fn candidates() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    let usual = fs::read_dir(USUAL).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut usual: Vec<PathBuf> = usual.collect();
    usual.sort();
    homes.extend(usual);
    // HOME/bin/javac, with symbolic links resolved.
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).map(|folder| folder.join("javac"));
    let homes_of = programs
        .filter_map(|javac| Some(javac.canonicalize().ok()?.parent()?.parent()?.to_owned()));
    homes.extend(homes_of);
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jdk_is_known_by_its_release_file_and_its_compiler() {
        assert_eq!(release_in("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.3\"\n"), Some(25));
        assert_eq!(release_in("JAVA_VERSION=\"21\""), Some(21));
        assert_eq!(release_in("JAVA_VERSION=\"1.8.0_402\""), Some(1));
        assert_eq!(release_in("JAVA_VERSION=\"ea\""), None);
        assert_eq!(release_in(""), None);
        let folder = tempfile::tempdir().unwrap();
        let home = |name: &str, version: &str| {
            let home = folder.path().join(name);
            fs::create_dir_all(home.join("bin")).unwrap();
            fs::write(home.join("release"), format!("JAVA_VERSION=\"{version}\"\n")).unwrap();
            home
        };
        let (runtime, compiler) = (home("jre", "17.0.1"), home("jdk", "17.0.2"));
        fs::write(compiler.join("bin/javac"), "").unwrap();
        let homes = [folder.path().join("none"), runtime, compiler.clone()];
        assert_eq!(Jdk::find(17, homes.clone()).unwrap().home, compiler);
        assert!(Jdk::find(25, homes).is_none());
    }
}
