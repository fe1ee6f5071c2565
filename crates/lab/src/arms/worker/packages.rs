//! Queries pkg-config for the packages that a C source needs.

use std::{
    collections::BTreeMap,
    env,
    process::{Command, Stdio},
};

/// The compiler flags for the packages.
#[derive(Debug, Default, Hash, PartialEq, Eq)]
pub struct Packages {
    /// The compiler flags. The study's own flags follow them, and therefore take precedence.
    pub cflags: Vec<String>,
    pub libs: Vec<String>,
    versions: Vec<String>,
}

impl Packages {
    /// Queries all packages. The keys are pkg-config names, the values the names of the Debian packages. The error is
    /// the reason.
    pub fn find(wanted: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut found = Self::default();
        for (name, package) in wanted {
            let ask = |what: &str| ask(what, name).map_err(|why| missing(package, &why));
            found.cflags.extend(ask("--cflags")?);
            found.libs.extend(ask("--libs")?);
            found.versions.extend(ask("--modversion")?);
        }
        Ok(found)
    }
}

fn missing(package: &str, why: &str) -> String {
    format!(
        "the program needs {package}: apt-get install pkgconf {package}, or the equivalent of your system ({why})"
    )
}

/// Returns the words of pkg-config's output, or its error message.
fn ask(what: &str, name: &str) -> Result<Vec<String>, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let asked = Command::new(&program).args([what, name]).stdin(Stdio::null()).output();
    let answer = asked.map_err(|e| format!("{program}: {e}"))?;
    let complaint = String::from_utf8_lossy(&answer.stderr);
    if !answer.status.success() {
        let first = complaint.lines().next().unwrap_or("no reason given");
        return Err(format!("{program} {what} {name}: {first}"));
    }
    let words = String::from_utf8_lossy(&answer.stdout);
    Ok(words.split_whitespace().map(str::to_owned).collect())
}
