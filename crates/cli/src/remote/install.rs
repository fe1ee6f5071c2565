//! Copies this program into `~/.cache/thalweg` of a machine that does not have it. A script on that machine checks the
//! copy and then gives it its final name.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::AsFd,
    process::{ChildStdin, ChildStdout, Command, Stdio},
};
use thalweg_core::{Cancelled, shown};
use thalweg_sys::Errno;
use thalweg_tree::{Hash, hashing::hash_file};

use crate::{
    exit::{CommandFailure, Exit},
    interrupt,
    output::text::note,
};

/// Largest program that is copied, in bytes.
const LARGEST: u64 = 256 << 20;
/// Size of the pieces in which the program is sent, in bytes.
const PIECE: usize = 64 << 10;

/// The script that runs on the other machine. It is one compound command, so the shell has read the whole script before
/// `head` reads the program from the same input. [`script`] replaces `KEY`, `SIZE`, `SHA256` and `SYSTEM`. The script
/// runs the new program once before renaming it to its final name.
const SCRIPT: &str = r#"{
set -e; umask 077; d="${HOME:-.}/.cache/thalweg/KEY"; p="$d/thalweg"
if [ -x "$p" ] && [ -O "$p" ]; then echo "there $p"; exit; fi
if [ "$(uname -sm)" != "SYSTEM" ]; then echo "system $(uname -sm)"; exit; fi
mkdir -p "$d"; t="$d/.thalweg.$$"; trap 'rm -f "$t"' EXIT
echo send; head -c SIZE >"$t"; chmod 700 "$t"
[ "$(wc -c <"$t")" -eq SIZE ] || { echo size; exit; }
if command -v sha256sum >/dev/null; then
[ "$(sha256sum <"$t" | cut -c 1-64)" = SHA256 ] || { echo digest; exit; }
fi
"$t" --version >/dev/null 2>&1 || { echo run; exit; }
mv "$t" "$p"; echo "there $p"; exit
}
"#;

/// Copies this program to the machine that `connection` reaches. Returns its path there.
pub fn install(host: &str, connection: &[OsString]) -> Result<String, CommandFailure> {
    let failed = |why: &str| {
        let message = format!("{}: cannot install thalweg: {why}", shown(host));
        CommandFailure::new(Exit::Failed, message)
    };
    let by_io = |error: io::Error| failed(&error.to_string());
    let mut program = File::open("/proc/self/exe").map_err(by_io)?;
    let size = program.metadata().map_err(by_io)?.len();
    if size > LARGEST {
        return Err(failed("the executable of this program is too large to copy"));
    }
    let mut bytes = Vec::new();
    program.read_to_end(&mut bytes).map_err(by_io)?;
    let mut buffer = vec![0; PIECE];
    let hashed = hash_file(
        program.as_fd(),
        Hash::Sha256,
        &mut buffer,
        size,
        &interrupt::check,
        |_: Errno| Cancelled,
    );
    let (_, sha256) = hashed.map_err(|_| failed("cannot read the executable of this program"))?;
    let sha256 = sha256.to_string();
    let script = script(&sha256, bytes.len());
    let [connect, words @ ..] = connection else {
        return Err(failed("the command of -e is empty"));
    };
    let mut command = Command::new(connect);
    // The connecting command may pass these words to a shell or execute them directly; `sh -s` means the same in both
    // cases.
    command.args(words).args(["sh", "-s"]).stderr(Stdio::null());
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(by_io)?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed("cannot connect to the standard input and output of the -e command"));
    };
    let answer = converse(host, &script, &bytes, input, output);
    let _ = child.wait();
    let answer = answer.map_err(by_io)?;
    match answer.split_once(' ') {
        // A shell on the other machine will interpret the path, so it must not contain special characters.
        Some(("there", path)) if path.bytes().all(is_quiet) => Ok(path.to_owned()),
        Some(("there", _)) => {
            Err(failed("the remote home directory has characters other than A-Za-z0-9-._/"))
        }
        Some(("system", system)) => Err(failed(&format!(
            "the remote machine is {}, which cannot run this program",
            shown(system)
        ))),
        _ if answer.is_empty() => Err(failed("the remote shell did not answer")),
        _ => Err(failed("the copied program is incomplete, or cannot run on the remote machine")),
    }
}

fn is_quiet(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._/".contains(&byte)
}

/// Returns the script for a program of this digest and size.
fn script(sha256: &str, size: usize) -> String {
    let uname = rustix::system::uname();
    let (name, machine) = (uname.sysname().to_string_lossy(), uname.machine().to_string_lossy());
    let key = format!("{}-{}", env!("CARGO_PKG_VERSION"), &sha256[..16.min(sha256.len())]);
    SCRIPT
        .replace("KEY", &key)
        .replace("SIZE", &size.to_string())
        .replace("SHA256", sha256)
        .replace("SYSTEM", &format!("{name} {machine}"))
}

/// Sends the script, and the program if it is requested. Returns the last line of the answer.
fn converse(
    host: &str,
    script: &str,
    program: &[u8],
    mut input: ChildStdin,
    output: ChildStdout,
) -> io::Result<String> {
    input.write_all(script.as_bytes())?;
    input.flush()?;
    let mut lines = BufReader::new(output.take(64 << 10)).lines();
    let mut last = String::new();
    while let Some(line) = lines.next().transpose()? {
        if line == "send" {
            note(&format!("{host}: copying thalweg to ~/.cache/thalweg"));
            for piece in program.chunks(PIECE) {
                input.write_all(piece)?;
            }
            input.flush()?;
        }
        last = line;
    }
    Ok(last)
}
