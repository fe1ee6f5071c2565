//! Finds the program that a command runs, and whether an object can be preloaded into it.

use rustix::{
    fs::getxattr,
    process::{getgid, getuid},
};
use serde::{Serialize, Serializer};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use super::{
    TrialError,
    elf::{Elf, HEAD},
};
use thalweg_measure::arms::command::find;

/// Maximum depth of nested interpreters; the kernel has the same limit.
const MOST_INTERPRETERS: usize = 5;

/// The program that a command runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrialProgram {
    /// The file, followed by the interpreters if it is a script. The loader sees the last one.
    #[serde(serialize_with = "as_text")]
    pub files: Vec<PathBuf>,
    /// The dynamic loader; `None` for a static program.
    pub loader: Option<PathBuf>,
    /// The reason why nothing can be preloaded; `None` if it is possible.
    pub unreachable: Option<String>,
    /// A note if the object reaches less of the program than expected.
    pub remark: Option<String>,
}

/// JSON strings must be text: bytes that are not valid UTF-8 become U+FFFD.
fn as_text<S: Serializer>(files: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(files.iter().map(|file| file.display().to_string()))
}

impl TrialProgram {
    /// Finds and inspects the program of a command. A command that cannot be executed is an error.
    pub fn find(command: &[OsString]) -> Result<Self, TrialError> {
        let name = command.first().map(OsString::as_os_str).unwrap_or_default();
        let mut files = vec![lookup(name)?];
        while files.len() <= MOST_INTERPRETERS {
            let file = files.last().expect("one at least").clone();
            let head = head_of(&file)?;
            if let Some(elf) = Elf::read(&head) {
                return Ok(Self::looked_at(&files, &elf));
            }
            files.extend(
                interpreters(&head).map_err(|why| TrialError::NoProgram {
                    name: file.display().to_string(),
                    why,
                })?,
            );
        }
        let why = format!("more than {MOST_INTERPRETERS} nested interpreters");
        Err(TrialError::NoProgram { name: name.display().to_string(), why })
    }

    fn looked_at(files: &[PathBuf], elf: &Elf) -> Self {
        let file = files.last().expect("one at least");
        let name = file.display();
        let mut program =
            Self { loader: None, unreachable: None, remark: None, files: files.to_vec() };
        if !elf.ours {
            program.unreachable = Some(format!(
                "{name} is for another word size or processor than this build of thalweg"
            ));
        } else if elf.loader.is_none() {
            let go = if elf.go { " by Go, which has copies of its own" } else { "" };
            program.unreachable = Some(format!(
                "{name} is linked statically{go}: it starts without a dynamic loader, and its memcpy \
                 is part of the program"
            ));
        } else if let Some(why) = privileged(file) {
            program.unreachable = Some(format!(
                "{name} {why}: for such programs the loader ignores LD_PRELOAD and GLIBC_TUNABLES"
            ));
        } else if elf.go {
            program.remark =
                Some(format!("{name} is a Go program: kernels replace memcpy only in its C code"));
        }
        program.loader = elf.loader.clone().map(PathBuf::from);
        program
    }
}

fn lookup(name: &OsStr) -> Result<PathBuf, TrialError> {
    find(name).map_err(|why| TrialError::NoProgram { name: name.display().to_string(), why })
}

fn head_of(path: &Path) -> Result<Vec<u8>, TrialError> {
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut head)).map_err(
        |e| TrialError::NoProgram { name: path.display().to_string(), why: e.to_string() },
    )?;
    Ok(head)
}

/// Returns the interpreter in the first line of a script, and the program that `env` there would start.
fn interpreters(head: &[u8]) -> Result<Vec<PathBuf>, String> {
    let Some(line) = head.strip_prefix(b"#!") else {
        return Err("neither an ELF program nor a script with #! in its first line".to_owned());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words =
        line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|w| !w.is_empty());
    let path = words.next().map(|word| PathBuf::from(OsStr::from_bytes(word)));
    let path = path.ok_or("its first line has a #! without an interpreter")?;
    if !path.is_file() {
        return Err(format!("its interpreter {} does not exist", path.display()));
    }
    let mut found = vec![path];
    if found[0].file_name() == Some(OsStr::new("env")) {
        // `env -S -u NAME NAME=VALUE program`: options and variables precede the program.
        let word = loop {
            match words.next() {
                Some(b"-u" | b"--unset" | b"-C" | b"--chdir" | b"-a" | b"--argv0") => {
                    words.next();
                }
                Some(word) if word.starts_with(b"-") || word.contains(&b'=') => {}
                word => break word,
            }
        };
        let name =
            word.map(OsStr::from_bytes).ok_or("its first line runs env without a program")?;
        found.push(lookup(name).map_err(|error| error.to_string())?);
    }
    Ok(found)
}

/// If the kernel runs this file with more privileges than the user has, returns the reason.
fn privileged(file: &Path) -> Option<&'static str> {
    const SETUID: u32 = 0o4000;
    // Without group execute permission, the set-group-ID bit has another meaning.
    const SETGID: u32 = 0o2010;
    let meta = file.metadata().ok()?;
    let (mode, user) = (meta.mode(), getuid());
    if mode & SETUID != 0 && meta.uid() != user.as_raw() {
        return Some("is set-user-ID");
    }
    if mode & SETGID == SETGID && meta.gid() != getgid().as_raw() {
        return Some("is set-group-ID");
    }
    let mut none = [0_u8; 0];
    let has_capabilities =
        getxattr(file, "security.capability", &mut none).is_ok_and(|len| len > 0);
    (has_capabilities && !user.is_root()).then_some("has file capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::elf::tests::program;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn file(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> OsString {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string()
    }

    #[test]
    fn a_command_is_found_in_the_path_and_has_a_loader() {
        let program = TrialProgram::find(&["sh".into(), "-c".into()]).unwrap();
        assert!(program.files[0].is_absolute() && program.loader.is_some(), "{program:?}");
        assert_eq!(program.unreachable, None);
    }

    #[test]
    fn what_cannot_run_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let why = |name: OsString| TrialProgram::find(&[name]).unwrap_err().to_string();
        assert!(why("no-such-command".into()).contains("not found in PATH"));
        assert!(why("".into()).contains("empty"));
        assert!(why("/no/such".into()).contains("No such file"));
        assert!(why(folder.into()).contains("not a file"));
        assert!(why(file(folder, "a", b"x", 0o644)).contains("not executable"));
        assert!(why(file(folder, "b", b"x", 0o755)).contains("neither an ELF program"));
        assert!(
            why(file(folder, "c", b"#!/no/such/sh\n", 0o755))
                .contains("/no/such/sh does not exist")
        );
        assert!(why(file(folder, "d", b"#! \n", 0o755)).contains("without an interpreter"));
        assert!(why(file(folder, "e", b"#!/usr/bin/env\n", 0o755)).contains("env without"));
        let own = format!("#!{}\n", folder.join("f").display());
        assert!(why(file(folder, "f", own.as_bytes(), 0o755)).contains("more than 5"));
    }

    #[test]
    fn a_name_that_is_no_text_is_shown_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::from_bytes(b"caf\xe9");
        let script = folder.path().join(name);
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let program = TrialProgram::find(&[script.into_os_string()]).unwrap();
        let json = serde_json::to_value(&program).unwrap();
        assert!(json["files"][0].as_str().unwrap().ends_with("caf\u{fffd}"), "{json}");
    }

    #[test]
    fn a_script_is_followed_to_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = file(folder.path(), "s", b"#!/usr/bin/env -S -u Y X=1 sh -e\n", 0o755);
        let program = TrialProgram::find(&[script]).unwrap();
        assert_eq!(program.files.len(), 3, "{program:?}");
        assert!(program.files[2].ends_with("sh") && program.unreachable.is_none());
    }

    #[test]
    fn static_and_foreign_programs_are_explained() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let machine = u64::from(u16::from_le_bytes([own[18], own[19]]));
        let why = |bytes: Vec<u8>| {
            let name = file(folder.path(), "p", &bytes, 0o755);
            TrialProgram::find(&[name]).unwrap().unreachable.unwrap_or_default()
        };
        assert!(why(program(machine, &[])).contains("linked statically:"));
        let go: (u64, &[u8]) = (4, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0");
        assert!(why(program(machine, &[go])).contains("statically by Go"));
        assert!(why(program(8, &[])).contains("another word size"));
        assert_eq!(why(program(machine, &[(3, b"/lib/ld.so\0")])), "");
    }
}
