//! The progress output of a tree copy. A terminal of any width shows a line that fits, with the completed part, the
//! remaining time and the current file. Without a terminal, SIGUSR1 requests a line.

use rustix::{
    fs::OFlags,
    process::Signal,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use crate::support::{Running, Scratch, run, run::ended_by, thalweg};

const FILES: u64 = 40;
const EACH: u64 = 40_000;

/// Makes a tree that takes some seconds to copy at 400 kB/s.
fn tree(at: &Path) {
    fs::create_dir(at).unwrap();
    for n in 0..FILES {
        let name = format!("a-file-with-a-name-that-fills-a-line-number-{n:04}");
        fs::write(at.join(name), vec![n as u8; EACH as usize]).unwrap();
    }
}

fn slow_copy(here: &Scratch) -> Command {
    copy_by(here, "--limit=400kB/s")
}

fn copy_by(here: &Scratch, limit: &str) -> Command {
    let (source, copy) = (here.join("tree"), here.join("copy"));
    tree(&source);
    let mut command = thalweg();
    command.args(["copy", "-r", "--jobs=1", limit]).arg(source).arg(copy);
    command
}

/// Returns the output of a command to a terminal with this number of columns.
fn on_terminal(columns: u16, command: &mut Command) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let flags = OpenptFlags::from_bits_retain((OFlags::RDWR | OFlags::NOCTTY).bits());
    let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    command.env("TERM", "xterm").env_remove("COLUMNS").env_remove("NO_COLOR");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(terminal));
    let mut child = command.spawn().unwrap();
    // Closes the test's copy of the terminal, so that reading the master ends when the command ends.
    command.stderr(Stdio::null());
    let mut said = Vec::new();
    // read(2) of the master fails with EIO after the last process has closed the terminal.
    let _ = File::from(master).read_to_end(&mut said);
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&said));
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns the lines that the terminal showed, without control sequences.
fn pictures(said: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut chars = said.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().skip(1).find(char::is_ascii_alphabetic)),
            '\r' | '\n' => lines.push(String::new()),
            c => lines.last_mut().unwrap().push(c),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).filter(|l| !l.is_empty()).collect()
}

#[test]
fn the_line_of_a_tree_fits_every_terminal_and_has_the_part_done_and_the_time_left() {
    for (columns, wanted) in [
        (40, &["%", "left "][..]),
        (80, &["%", "left ", "/s"]),
        (120, &["%", "left ", "/s", "/40 files", "a-name-that-fills"]),
    ] {
        let here = Scratch::new();
        let said = on_terminal(columns, &mut slow_copy(&here));
        // The final line stays on the terminal, and may be longer than its width.
        let mut lines = pictures(&said);
        lines.retain(|line| !line.contains(" copied"));
        for line in &lines {
            assert!(line.chars().count() < usize::from(columns), "{columns} columns: {line:?}");
        }
        let whole = |line: &&String| wanted.iter().all(|part| line.contains(part));
        assert!(lines.iter().any(|line| whole(&line)), "{columns} columns: {lines:#?}");
    }
}

/// Returns the lines of standard error while the command runs.
fn listen(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap)
}

#[test]
fn a_copy_without_a_terminal_answers_sigusr1_by_a_line_and_goes_on() {
    let here = Scratch::new();
    // This copy is slower than the others, so that it still runs when the signals arrive, also on a busy machine.
    let mut command = copy_by(&here, "--limit=150kB/s");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Waits until the copy has started. From then on, the signal does not kill it.
    let parts = || fs::read_dir(here.path()).unwrap().count();
    while parts() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    let mut lines = listen(&mut child);
    rustix::process::kill_process(pid, Signal::USR1).unwrap();
    let first = lines.next().expect("a line");
    assert!(first.starts_with("thalweg: ") && first.contains("B in "), "{first}");
    // The first SIGUSR1 starts the count of files, so that a later line has the percentage.
    rustix::process::kill_process(pid, Signal::USR1).unwrap();
    let mut later = lines.next().expect("another line");
    while !later.contains(" of 40 files") {
        thread::sleep(std::time::Duration::from_millis(20));
        rustix::process::kill_process(pid, Signal::USR1).unwrap();
        later = lines.next().expect("a line with the total");
    }
    assert!(later.contains(" %, left "), "{later}");
    assert_eq!(lines.count(), 0);
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_dir(here.join("copy")).unwrap().count() as u64, FILES);
}

#[test]
fn a_pipe_that_waits_for_its_source_answers_sigusr1_at_once() {
    let mut command = thalweg();
    command.arg("pipe").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut source = child.stdin.take().unwrap();
    source.write_all(b"some of it").unwrap();
    let mut sink = child.stdout.take().unwrap();
    sink.read_exact(&mut [0; 10]).unwrap();
    // The pipe has moved all data, and waits for more.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::USR1).unwrap();
    let mut lines = listen(&mut child);
    let line = lines.next().expect("a line");
    assert!(
        line.starts_with("thalweg: 10 B in ") || line.starts_with("thalweg: 0 B in "),
        "{line}"
    );
    drop(source);
    assert_eq!(lines.count(), 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn lines_of_json_have_the_totals_of_a_tree_once_it_is_counted() {
    let here = Scratch::new();
    let ran = run(slow_copy(&here).args(["--progress=json", "--json"])).expect(0);
    let lines: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = &lines.last().expect("lines")["progress"];
    assert_eq!(last["done"], true, "{last}");
    assert_eq!(last["settled_bytes"], FILES * EACH, "{last}");
    let counted = |line: &&Value| line["progress"]["total"] == FILES * EACH;
    let counted: Vec<&Value> = lines.iter().filter(counted).collect();
    assert!(counted.iter().any(|line| line["progress"]["total_files"] == FILES), "{lines:#?}");
}

#[test]
fn lines_of_a_sync_have_its_totals_and_100_percent_after_the_last_file_only() {
    let here = Scratch::new();
    tree(&here.join("tree"));
    let sync = |progress: &str, copy: &str| {
        let mut command = thalweg();
        command.args(["sync", "--jobs=1", "--limit=400kB/s", progress]);
        run(command.arg(here.join("tree")).arg(here.join(copy))).expect(0)
    };
    let ran = sync("--progress=json", "one");
    let lines: Vec<Value> =
        ran.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let totals = |line: &Value| {
        let progress = &line["progress"];
        (progress["total"].as_u64(), progress["total_files"].as_u64())
    };
    let all = (Some(FILES * EACH), Some(FILES));
    assert!(lines.iter().all(|line| [(None, None), all].contains(&totals(line))), "{lines:#?}");
    assert_eq!(lines.last().map(totals), Some(all), "{lines:#?}");
    let said = sync("--progress=always", "two").stderr;
    // A line may be written after the last file, and before the end.
    let full: Vec<&str> = said.lines().filter(|line| line.contains("100 %")).collect();
    assert!(full.iter().all(|line| line.contains(", 100 %, 40 of 40 files")), "{said}");
    assert!(full.last().is_some_and(|line| line.ends_with(", 100 %, 40 of 40 files")), "{said}");
}

#[test]
fn what_compares_or_hashes_says_which_part_is_done_once_it_is_counted() {
    const LEN: u64 = 64 << 30;
    let here = Scratch::new();
    let [tree, copy] = ["tree", "copy"].map(|name| here.join(name));
    for folder in [&tree, &copy] {
        fs::create_dir(folder).unwrap();
        File::create(folder.join("hole")).unwrap().set_len(LEN).unwrap();
    }
    let out = here.join("manifest");
    let (tree, copy) = (tree.as_os_str(), copy.as_os_str());
    for words in [
        &["verify".as_ref(), "-T".as_ref(), tree, copy][..],
        &["manifest".as_ref(), "-o".as_ref(), out.as_os_str(), tree],
    ] {
        let mut command = thalweg();
        command.args(words).arg("--progress=json").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let counted = listen(&mut child).find_map(|line| {
            let line: Value = serde_json::from_str(&line).unwrap();
            let progress = line["progress"].clone();
            (progress["total_files"] == 1 && progress["settled_bytes"] != 0).then_some(progress)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let counted = counted.unwrap_or_else(|| panic!("{words:?}: it ended without a total"));
        assert_eq!(counted["total"], LEN, "{words:?}: {counted}");
        assert!(counted["eta_seconds"].as_f64().unwrap() > 0.0, "{words:?}: {counted}");
    }
}

#[test]
fn a_reader_that_has_had_enough_ends_a_command_without_a_word() {
    for words in [&["list"][..], &["list", "--json"], &["--help"]] {
        // Closes the reading end before the command starts. Later, the command might have written everything already.
        let (_, nobody_reads) = std::io::pipe().unwrap();
        let mut command = thalweg();
        let child =
            command.args(words).stdout(nobody_reads).stderr(Stdio::piped()).spawn().unwrap();
        let ran = Running::of(child).finish();
        assert_eq!(ran.stderr, "", "{words:?}");
        assert!(ended_by(ran.status, libc::SIGPIPE), "{words:?}: {ran:?}");
    }
}

#[test]
fn no_color_and_a_terminal_give_no_colour_and_always_gives_it() {
    let has_colour = |command: &mut Command| run(command).expect(0).stdout.contains(&0x1b);
    assert!(has_colour(thalweg().args(["plan", "memory:", "memory:", "--color=always"])));
    assert!(!has_colour(thalweg().args(["plan", "memory:", "memory:"]).env("NO_COLOR", "1")));
}
