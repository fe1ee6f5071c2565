//! Builds a Java source once, with the JDK of the release that the study names, into a jar that is run
//! as programs are. The jar is kept in the cache under everything that it depends on.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Job, Parameters, build};
use crate::scratch::Folder;

/// Where Linux distributions put their JDKs.
const USUAL: &str = "/usr/lib/jvm";

/// The virtual machine, and the words before those of the program. `Err` is the reason.
pub(super) fn built(job: &Job<'_>, with: &Parameters) -> Result<(PathBuf, Vec<OsString>), String> {
    let release = with.jdk.ok_or("a Java source needs jdk, the release that builds and runs it")?;
    let source = job.studies.join(&with.program);
    let jdk = Jdk::find(release, candidates())
        .ok_or_else(|| missing(release, &with.program.display().to_string()))?;
    let mut others = Vec::new();
    for folder in &with.java_sources {
        sources_below(&job.studies.join(folder), &mut others)?;
    }
    let jar = jdk.jar(&source, &others, job.scratch)?;
    // Its counters are a mapped file under /tmp and a thread that wakes up all the time.
    let mut words = vec![OsString::from("-XX:-UsePerfData")];
    words.extend(with.java_args.iter().map(OsString::from));
    words.extend(["-jar".into(), jar.into()]);
    Ok((jdk.home.join("bin/java"), words))
}

fn missing(release: u32, program: &str) -> String {
    format!(
        "no JDK {release} in JAVA_HOME, {USUAL} or PATH; {program} needs one: install \
         openjdk-{release}-jdk-headless, or https://adoptium.net/temurin/releases/?version={release}"
    )
}

struct Jdk {
    home: PathBuf,
    release: u32,
    /// The file `release`, which every JDK has: vendor and version, to the last digit.
    facts: String,
}

impl Jdk {
    /// The first of these folders that is a JDK of this release.
    fn find(release: u32, homes: impl IntoIterator<Item = PathBuf>) -> Option<Self> {
        homes.into_iter().filter_map(Self::at).find(|jdk| jdk.release == release)
    }

    /// The JDK in this folder: one that can compile.
    fn at(home: PathBuf) -> Option<Self> {
        let facts = fs::read_to_string(home.join("release")).ok()?;
        let release = release_in(&facts)?;
        home.join("bin/javac").is_file().then_some(Self { home, release, facts })
    }

    /// The jar of `source`, whose program it runs, of those beside it that it uses, and of `others`.
    fn jar(&self, source: &Path, others: &[PathBuf], scratch: &Path) -> Result<PathBuf, String> {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let beside = source.parent().unwrap_or(Path::new("."));
        let name = format!("{stem}-java{}-{:016x}.jar", self.release, self.key(source, others)?);
        let folder = build::cache().unwrap_or_else(|| scratch.to_owned());
        let jar = folder.join(&name);
        if jar.is_file() {
            return Ok(jar);
        }
        // Under another name first: somebody else may be running it, or building it too.
        let failed = |e: io::Error| format!("{}: {e}", folder.display());
        let aside = Folder::inside(&folder).map_err(failed)?;
        let mut command = Command::new(self.home.join("bin/javac"));
        command.args(["--release", &self.release.to_string(), "-encoding", "UTF-8", "-proc:none"]);
        command.arg("-sourcepath").arg(beside).arg("-d").arg(aside.file("classes"));
        command.arg(source).args(others);
        build::compiled(&mut command, &format!("javac {}", self.release), source)?;
        let mut command = Command::new(self.home.join("bin/jar"));
        command.arg("--create").arg("--file").arg(aside.file(&name));
        command.args(["--main-class", &stem, "-C"]).arg(aside.file("classes")).arg(".");
        build::compiled(&mut command, &format!("jar {}", self.release), source)?;
        fs::rename(aside.file(&name), &jar).map_err(failed)?;
        Ok(jar)
    }

    /// Differs where the jar would: the JDK, the source, those beside it, and the others.
    fn key(&self, source: &Path, others: &[PathBuf]) -> Result<u64, String> {
        let mut hasher = DefaultHasher::new();
        (&self.home, &self.facts).hash(&mut hasher);
        let mut files = vec![source.to_owned()];
        files.extend_from_slice(others);
        let beside = source.parent().map(fs::read_dir).and_then(Result::ok);
        let beside = beside.into_iter().flatten().flatten().map(|entry| entry.path());
        files.extend(beside.filter(|path| is_java(path)));
        files.sort();
        files.dedup();
        for file in files {
            let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            (file, bytes).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}

/// `JDK 25` and the version, to the last digit, of each release that an arm would find here.
pub(crate) fn jdks() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for jdk in candidates().into_iter().filter_map(Jdk::at) {
        let version = version_in(&jdk.facts).unwrap_or_default().to_owned();
        found.entry(format!("JDK {}", jdk.release)).or_insert(version);
    }
    found
}

/// The version, from the line `JAVA_VERSION="25.0.3"`.
fn version_in(facts: &str) -> Option<&str> {
    let rest = facts.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    rest.split('"').next()
}

/// The feature release, its first number; 8 and older call themselves 1.8.
fn release_in(facts: &str) -> Option<u32> {
    let version = version_in(facts)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Folders that may be a JDK, the user's own choice first.
fn candidates() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    let usual = fs::read_dir(USUAL).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut usual: Vec<PathBuf> = usual.collect();
    usual.sort();
    homes.extend(usual);
    // HOME/bin/javac, behind whatever links lead there.
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).map(|folder| folder.join("javac"));
    let homes_of = programs
        .filter_map(|javac| Some(javac.canonicalize().ok()?.parent()?.parent()?.to_owned()));
    homes.extend(homes_of);
    homes
}

fn is_java(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "java")
}

/// Every source below a folder but the description of a module: programs are in none.
fn sources_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |e: io::Error| format!("Java sources in {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A link is neither: nothing leads round in circles.
        let kind = entry.file_type().map_err(failed)?;
        let path = entry.path();
        if kind.is_dir() {
            sources_below(&path, found)?;
        } else if kind.is_file() && is_java(&path) && entry.file_name() != "module-info.java" {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
