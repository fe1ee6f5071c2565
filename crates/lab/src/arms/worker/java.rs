//! Builds a Java source once, with the JDK of the release that the study names, into a jar that is run
//! as programs are. The jar is kept in the cache under everything that it depends on.

use std::{
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Job, Parameters, build};
use crate::measure::conditions::jdk::{Jdk, USUAL, candidates};

/// The virtual machine, and the words before those of the program. `Err` is the reason.
pub(super) fn built(job: &Job<'_>, with: &Parameters) -> Result<(PathBuf, Vec<OsString>), String> {
    let release = with.jdk.ok_or("no jdk is named")?;
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

/// What a compiler's own virtual machine is started with: it ends before its second compiler, or a collector with many
/// threads, pays.
const BRIEF: [&str; 2] = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"];

impl Jdk {
    /// The jar of `source`, whose program it runs, of those beside it that it uses, and of `others`.
    fn jar(&self, source: &Path, others: &[PathBuf], scratch: &Path) -> Result<PathBuf, String> {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let beside = source.parent().unwrap_or(Path::new("."));
        let name = format!("{stem}-java{}-{:016x}.jar", self.release, self.key(source, others)?);
        build::kept(&name, scratch, |aside| {
            let release = self.release.to_string();
            let mut command = Command::new(self.home.join("bin/javac"));
            command.args(BRIEF).args(["--release", &release, "-encoding", "UTF-8", "-proc:none"]);
            command.arg("-sourcepath").arg(beside).arg("-d").arg(aside.file("classes"));
            command.arg(source).args(others);
            build::compiled(&mut command, &format!("javac {release}"), source)?;
            let mut command = Command::new(self.home.join("bin/jar"));
            command.args(BRIEF).arg("--create").arg("--file").arg(aside.file(&name));
            command.args(["--main-class", &stem, "-C"]).arg(aside.file("classes")).arg(".");
            build::compiled(&mut command, &format!("jar {release}"), source)
        })
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
