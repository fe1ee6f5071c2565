//! Builds a C source once. The program is cached under a key of everything that affects it.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use thalweg_sys::host;

use super::packages::Packages;
use thalweg_measure::scratch::{ScratchFolder, cache};

/// The flags for building a source.
#[derive(Debug, Hash)]
pub struct CompilerFlags<'f> {
    pub own: &'f [String],
    pub packages: Packages,
}

/// Returns the program of this source, built by `$CC` or `cc` with these flags. The error is the reason.
pub fn built(source: &Path, flags: &CompilerFlags<'_>, scratch: &Path) -> Result<PathBuf, String> {
    let compiler = Compiler::find(source)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}-{:016x}", compiler.key(source, flags)?);
    kept(&name, scratch, |aside| compiler.build(source, flags, &aside.file(&name)))
}

/// Returns the cache entry with this name. If it does not exist, `make` creates it in a temporary directory. A rename
/// then moves it into the cache atomically, because another process may be building or starting the same program.
pub fn kept(
    name: &str,
    scratch: &Path,
    make: impl FnOnce(&ScratchFolder) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = cache("programs").unwrap_or_else(|| scratch.to_owned());
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    let failed = |e: io::Error| format!("{}: {e}", folder.display());
    let aside = ScratchFolder::inside(&folder).map_err(failed)?;
    make(&aside)?;
    fs::rename(aside.file(name), &path).map_err(failed)?;
    Ok(path)
}

struct Compiler {
    words: Vec<String>,
    version: String,
}

impl Compiler {
    fn find(source: &Path) -> Result<Self, String> {
        let given = env::var("CC").ok().filter(|words| !words.trim().is_empty());
        let words: Vec<String> =
            given.as_deref().unwrap_or("cc").split_whitespace().map(str::to_owned).collect();
        let missing = |e: &dyn std::fmt::Display| {
            let (cc, name) = (&words[0], source.display());
            format!("{cc}: {e}; {name} needs a C compiler: install gcc or clang, or set CC to one")
        };
        let asked = Command::new(&words[0]).arg("--version").stdin(Stdio::null()).output();
        let answer = asked.map_err(|e| missing(&e))?;
        if !answer.status.success() {
            return Err(missing(&answer.status));
        }
        let version = String::from_utf8_lossy(&answer.stdout).into_owned();
        Ok(Self { words, version })
    }

    /// Returns a key of everything that affects the program: compiler, flags, packages, source, the headers next to
    /// it, and the CPU, because of `-march=native`.
    fn key(&self, source: &Path, flags: &CompilerFlags<'_>) -> Result<u64, String> {
        let mut hasher = DefaultHasher::new();
        (&self.words, &self.version, flags, host::cpu_model()).hash(&mut hasher);
        let mut files = vec![source.to_owned()];
        let beside = source.parent().map(fs::read_dir).and_then(Result::ok);
        let beside = beside.into_iter().flatten().flatten().map(|entry| entry.path());
        files.extend(beside.filter(|path| path.extension().is_some_and(|e| e == "h")));
        files.sort();
        for file in files {
            let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            (file.file_name(), bytes).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    fn build(
        &self,
        source: &Path,
        flags: &CompilerFlags<'_>,
        program: &Path,
    ) -> Result<(), String> {
        let CompilerFlags { own, packages } = flags;
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(&packages.cflags).args(*own);
        command.args(["-pthread", "-o"]).arg(program).arg(source).args(&packages.libs);
        compiled(&mut command, &self.words.join(" "), source)
    }
}

/// Runs a compiler; the error contains its first message.
pub fn compiled(command: &mut Command, compiler: &str, source: &Path) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{compiler}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let first: Vec<&str> = words.lines().take(6).collect();
    Err(format!("{compiler} cannot build {}: {}", source.display(), first.join(" | ")))
}
