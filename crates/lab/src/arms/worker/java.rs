//! Builds a Java source once, with the JDK release that the study names, into a jar that runs like a program. The jar
//! is cached under a key of everything that affects it.

use std::{
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{ArmJob, WorkerParameters, build};
use thalweg_measure::conditions::jdk::{Jdk, USUAL, candidates};

/// Returns the Java virtual machine, and the arguments before those of the program. The error is the reason.
pub(super) fn built(
    job: &ArmJob<'_>,
    with: &WorkerParameters,
) -> Result<(PathBuf, Vec<OsString>), String> {
    let release = with.jdk.ok_or("the study does not set jdk")?;
    let source = job.studies.join(&with.program);
    let jdk = Jdk::find(release, candidates())
        .ok_or_else(|| missing(release, &with.program.display().to_string()))?;
    let mut others = Vec::new();
    for folder in &with.java_sources {
        sources_below(&job.studies.join(folder), &mut others)?;
    }
    let jar = jar_of(&jdk, &source, &others, job.scratch)?;
    // The virtual machine's performance counters use a mapped file under /tmp and a thread that wakes up constantly.
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

/// Options for the compiler's own virtual machine: it exits before a second-tier compiler or a parallel garbage
/// collector pays off.
const BRIEF: [&str; 2] = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"];

/// Returns the jar that contains `source` as main program, the sources next to `source` that it uses, and `others`.
fn jar_of(jdk: &Jdk, source: &Path, others: &[PathBuf], scratch: &Path) -> Result<PathBuf, String> {
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let beside = source.parent().unwrap_or(Path::new("."));
    let name = format!("{stem}-java{}-{:016x}.jar", jdk.release, key_of(jdk, source, others)?);
    build::kept(&name, scratch, |aside| {
        let release = jdk.release.to_string();
        let mut command = Command::new(jdk.home.join("bin/javac"));
        command.args(BRIEF).args(["--release", &release, "-encoding", "UTF-8", "-proc:none"]);
        command.arg("-sourcepath").arg(beside).arg("-d").arg(aside.file("classes"));
        command.arg(source).args(others);
        build::compiled(&mut command, &format!("javac {release}"), source)?;
        let mut command = Command::new(jdk.home.join("bin/jar"));
        command.args(BRIEF).arg("--create").arg("--file").arg(aside.file(&name));
        command.args(["--main-class", &stem, "-C"]).arg(aside.file("classes")).arg(".");
        build::compiled(&mut command, &format!("jar {release}"), source)
    })
}

/// Returns a key of everything that affects the jar: the JDK, the source, those next to it, and the others.
fn key_of(jdk: &Jdk, source: &Path, others: &[PathBuf]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    (&jdk.home, &jdk.facts).hash(&mut hasher);
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

fn is_java(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "java")
}

/// Finds every source below a directory except module descriptions, because the programs are not modules.
fn sources_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed =
        |e: io::Error| format!("cannot list the Java sources in {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Symbolic links are skipped, so that the walk cannot loop.
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
