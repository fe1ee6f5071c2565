//! The attacker's knowledge of a command that root will run, and the entries that the attacker makes with it.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    arena::{Arena, EVIL, chmod},
    commands::Row,
};

/// Public facts of a command that root will run.
pub struct Victim {
    pub d: PathBuf,
    pub target: &'static str,
    pub canary: PathBuf,
    /// The source's directories and files.
    files: Vec<Planned>,
    /// The content of a plausible journal.
    journal: Value,
    pub makes_tree: bool,
}

/// A file or a directory of the source.
struct Planned {
    name: PathBuf,
    is_dir: bool,
    size: u64,
    modified: SystemTime,
}

impl Victim {
    pub fn of(arena: &Arena, row: &Row) -> Self {
        let source = arena.own(row.source().unwrap_or("public"));
        let mut files = Vec::new();
        list(&source, Path::new(""), &mut files);
        let journal_source = if row.is_of_server() && row.makes_tree() {
            json!({"url": arena.url("tree/"), "validator": "", "size": 0})
        } else if row.is_of_server() {
            let url = arena.url("install.sh");
            json!({"url": url, "validator": etag(&url), "size": files[0].size})
        } else {
            let meta = fs::metadata(&source).unwrap();
            json!({"dev": meta.dev(), "ino": meta.ino(), "size": meta.size(),
                "mtime": [meta.mtime(), meta.mtime_nsec()], "ctime": [meta.ctime(), meta.ctime_nsec()]})
        };
        let size = files[0].size;
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let done = if row.makes_tree() { json!([]) } else { json!([[0, size]]) };
        let journal = json!({"schema": 2, "source": journal_source, "done": done,
            "boot_id": boot_id.trim()});
        let (d, canary) = (arena.d(), arena.canary());
        Self { d, target: row.target, canary, files, journal, makes_tree: row.makes_tree() }
    }

    pub fn target(&self) -> PathBuf {
        self.d.join(self.target)
    }

    pub fn part(&self) -> PathBuf {
        self.hidden("thalweg-part")
    }

    pub fn journal(&self) -> PathBuf {
        self.hidden("thalweg-journal")
    }

    pub fn fleet(&self) -> PathBuf {
        self.hidden("thalweg-fleet")
    }

    pub fn lock(&self) -> PathBuf {
        self.hidden("lock")
    }

    pub fn hidden_names(&self) -> [PathBuf; 4] {
        [self.part(), self.journal(), self.fleet(), self.lock()]
    }

    fn hidden(&self, suffix: &str) -> PathBuf {
        self.d.join(format!(".{}.{suffix}", self.target))
    }

    /// Returns the size of the source, which the attacker's files have, too.
    pub fn size(&self) -> u64 {
        self.files[0].size
    }

    /// Makes a journal that records all bytes as complete.
    pub fn write_journal(&self, path: &Path) {
        let mut text = self.journal.to_string();
        let room = 4095 - text.len();
        text.push_str(&" ".repeat(room));
        text.push('\n');
        plant(path, &text, 0o666);
    }

    /// Plants a directory with the names, sizes and times of the source, and with other bytes.
    pub fn plant_tree(&self, folder: &Path) {
        for Planned { name, is_dir, size, modified } in &self.files {
            let path =
                if name.as_os_str().is_empty() { folder.to_owned() } else { folder.join(name) };
            if *is_dir {
                fs::create_dir(&path).unwrap();
                chmod(&path, 0o777);
            } else {
                let file = plant(&path, &evil(*size), 0o666);
                file.set_modified(*modified).unwrap();
            }
        }
    }
}

fn list(source: &Path, name: &Path, found: &mut Vec<Planned>) {
    let path = source.join(name);
    let path = if name.as_os_str().is_empty() { source.to_owned() } else { path };
    let meta = fs::symlink_metadata(&path).unwrap();
    if !meta.is_dir() && !meta.is_file() {
        return;
    }
    let (is_dir, size, modified) = (meta.is_dir(), meta.len(), meta.modified().unwrap());
    found.push(Planned { name: name.to_owned(), is_dir, size, modified });
    for entry in fs::read_dir(&path).into_iter().flatten().flatten().filter(|_| is_dir) {
        list(source, &name.join(entry.file_name()), found);
    }
}

/// Returns the ETag that the server sends to any client.
fn etag(url: &str) -> String {
    let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let mut server = TcpStream::connect(host).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    write!(server, "HEAD /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    let tag = answer
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("etag: ").map(str::to_owned));
    tag.unwrap_or_else(|| panic!("no tag in {answer}"))
}

/// Returns this number of bytes of the attacker's text.
pub fn evil(size: u64) -> String {
    let mut text = EVIL.repeat(size as usize / EVIL.len() + 1);
    text.truncate(size as usize);
    text
}

/// Makes a file with this text and mode, and returns it open for reading and writing.
pub fn plant(path: &Path, text: &str, mode: u32) -> File {
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let mut file = made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(text.as_bytes()).unwrap();
    chmod(path, mode);
    file
}

pub fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    chmod(path, 0o666);
}
