//! A source that can never change: the command passes its pages by reference without `--zero-copy`.

use crate::support;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::Value;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, Write},
    net::TcpStream,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{fs::symlink, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use thalweg_core::{Guarantees, Kind, mechanisms::by_name};

use support::{Ran, Scratch, bytes, skip};

const EVERY: [SealFlags; 3] = [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW];

/// Returns a memfd with these bytes and seals.
fn sealed(bytes: &[u8], seals: SealFlags) -> File {
    let mut file = File::from(memfd_create("source", MemfdFlags::ALLOW_SEALING).unwrap());
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Moves the source into a pipe or a socket with `thalweg pipe`. Checks the bytes, and returns the guarantees of the
/// mechanism that it used.
fn gives(scratch: &Scratch, source: File, data: &[u8], into: Kind) -> Guarantees {
    let (mut reader, writer): (File, OwnedFd) = if into == Kind::Socket {
        let (reader, writer) = UnixStream::pair().unwrap();
        (File::from(OwnedFd::from(reader)), writer.into())
    } else {
        let (reader, writer) = std::io::pipe().unwrap();
        (File::from(OwnedFd::from(reader)), writer.into())
    };
    let mut command = scratch.thalweg(["pipe", "--json", "--progress=never"]);
    command.stdin(source).stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Closes the writing end, which the command object holds. Otherwise the reader would never reach the end.
    drop(command);
    let mut arrived = Vec::new();
    reader.read_to_end(&mut arrived).unwrap();
    assert!(arrived == data, "{} bytes of {}", arrived.len(), data.len());
    let told = Ran::of_child(child).ended(0).err_json();
    let mechanism = by_name(told["mechanism"].as_str().unwrap()).unwrap();
    mechanism.info().pair(Kind::File, into).unwrap().gives
}

#[test]
fn pages_of_a_fully_sealed_memfd_are_handed_over_and_those_of_another_are_not() {
    let (scratch, data) = (Scratch::new(), bytes(300_000));
    for into in [Kind::Pipe, Kind::Socket] {
        let every = EVERY.into_iter().collect();
        assert_eq!(gives(&scratch, sealed(&data, every), &data, into), Guarantees::SHARED);
        for missing in EVERY {
            let most = EVERY.into_iter().filter(|seal| *seal != missing).collect();
            let given = gives(&scratch, sealed(&data, most), &data, into);
            assert_eq!(given, Guarantees::COPIED, "{missing:?} into {into}");
        }
    }
}

#[test]
fn the_plan_says_why_no_flag_is_needed() {
    let scratch = Scratch::new();
    let plan = |seals: SealFlags| -> Value {
        let mut command = scratch.thalweg(["plan", "--json", "-", "pipe:"]);
        command.stdin(sealed(&bytes(9000), seals)).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ran::of_child(command.spawn().unwrap()).ended(0).json()
    };
    let (whole, partly) = (plan(EVERY.into_iter().collect()), plan(SealFlags::WRITE));
    assert_eq!(
        (&whole["source"]["unchanging"], &partly["source"]["unchanging"]),
        (&true.into(), &false.into())
    );
    let why = |plan: &Value| plan["verdicts"][0]["why"].as_str().unwrap().to_owned();
    assert!(why(&whole).contains("can never change"), "{}", why(&whole));
    assert!(!why(&partly).contains("shares"), "{}", why(&partly));
}

/// Unmounts at the end of a test, also if the test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Mounts a squashfs with one file of these bytes at `at`. If that fails, records a skip and returns `None`.
fn squashfs(test: &str, scratch: &Scratch, data: &[u8]) -> Option<Mounted> {
    let skip = |why: &str| {
        skip(test, why);
        None
    };
    let (tree, image, at) = (scratch.path("tree"), scratch.path("image"), scratch.path("at"));
    for folder in [&tree, &at] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(tree.join("file"), data).unwrap();
    let made = Command::new("mksquashfs").arg(&tree).arg(&image).arg("-quiet").output();
    match made {
        Ok(made) if made.status.success() => {}
        Ok(made) => return skip(&String::from_utf8_lossy(&made.stderr)),
        Err(error) => return skip(&format!("mksquashfs: {error}")),
    }
    let mut mount = Command::new("mount");
    mount.args(["-t", "squashfs", "-o", "loop,ro"]).args([&image, &at]);
    let mounted = mount.output().unwrap();
    if !mounted.status.success() {
        return skip(&String::from_utf8_lossy(&mounted.stderr));
    }
    Some(Mounted(at))
}

#[test]
fn pages_of_a_squashfs_are_handed_over() {
    let (scratch, data) = (Scratch::new(), bytes(300_000));
    let mounted = squashfs("pages_of_a_squashfs_are_handed_over", &scratch, &data);
    let Some(Mounted(at)) = &mounted else { return };
    for into in [Kind::Pipe, Kind::Socket] {
        let source = File::open(at.join("file")).unwrap();
        assert_eq!(gives(&scratch, source, &data, into), Guarantees::SHARED, "{into}");
    }
}

/// Fetches files from `thalweg serve`. Checks their bytes, and returns the guarantees of the mechanisms that served
/// them.
fn serving_gives(scratch: &Scratch, folder: &Path, names: &[&str], data: &[u8]) -> Vec<Guarantees> {
    let mut command =
        scratch.thalweg(["serve", "--listen", "0", "--log", "json", "--follow", "any"]);
    command.arg(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit("http://").next().unwrap().trim_end_matches('/');
    for name in names {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET /{name} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(data), "{name}");
    }
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let told = Ran::of_child(server).ended(0).err;
    // The log lines of several workers come in any order.
    let answers: Vec<Value> =
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let gives = names.iter().map(|name| {
        let asked = format!("GET /{name} HTTP/1.0");
        let answer = answers.iter().find(|answer| answer["request"] == *asked).unwrap();
        let mechanism = by_name(answer["mechanism"].as_str().unwrap()).unwrap();
        mechanism.info().pair(Kind::File, Kind::Socket).unwrap().gives
    });
    gives.collect()
}

#[test]
fn pages_of_a_squashfs_are_served_without_a_flag_and_those_of_another_file_are_not() {
    let test = "pages_of_a_squashfs_are_served_without_a_flag";
    let (scratch, data) = (Scratch::new(), bytes(300_000));
    let mounted = squashfs(test, &scratch, &data);
    let Some(Mounted(at)) = &mounted else { return };
    assert_eq!(serving_gives(&scratch, at, &["file"], &data), [Guarantees::SHARED]);
    let tree = scratch.path("tree");
    assert_eq!(serving_gives(&scratch, &tree, &["file"], &data), [Guarantees::COPIED]);
}

#[test]
fn pages_of_a_sealed_file_are_served_without_a_flag_and_those_of_its_neighbours_are_not() {
    let (scratch, data) = (Scratch::new(), bytes(300_000));
    let folder = scratch.path("served");
    std::fs::create_dir(&folder).unwrap();
    let every = EVERY.into_iter().collect();
    let names = ["before", "sealed", "behind"];
    let files = [SealFlags::WRITE, every, SealFlags::WRITE].map(|seals| sealed(&data, seals));
    for (name, file) in names.iter().zip(&files) {
        let held = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        symlink(held, folder.join(name)).unwrap();
    }
    let gives = [Guarantees::COPIED, Guarantees::SHARED, Guarantees::COPIED];
    assert_eq!(serving_gives(&scratch, &folder, &names, &data), gives);
}
