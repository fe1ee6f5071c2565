//! Real file systems on loop devices, one set for the whole test binary.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use super::skip;

/// The mounted file systems, and the missing ones with the reasons.
pub struct Mounts {
    mounted: Vec<(String, PathBuf)>,
    missing: Vec<(String, String)>,
    /// A process that unmounts everything when this process ends. This process cannot do it: a static is never dropped,
    /// and a kill runs no code.
    _undertaker: Option<Child>,
}

/// Returns the set of mounts. The first call makes it.
pub fn mounts() -> &'static Mounts {
    static MOUNTS: LazyLock<Mounts> = LazyLock::new(Mounts::up);
    &MOUNTS
}

/// The names of the large file systems.
pub const ROOMY: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];

impl Mounts {
    fn up() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/setup/filesystems");
        let name = format!("mounts-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !rustix::process::geteuid().is_root() {
            return Self::none("needs root", None);
        }
        // The clean-up runs in a new process group, so that Ctrl-C ends only the tests. The trap ignores SIGHUP, which
        // a stopped group receives when this process ends.
        let undertaker = Command::new("sh")
            .args(["-c", "trap '' HUP; read -r _; exec \"$1\" down \"$2\"", "sh"])
            .args([&script, &folder])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh");
        let up = Command::new(&script).arg("up").arg(&folder).output().expect("the mount script");
        if !up.status.success() {
            let reason = String::from_utf8_lossy(&up.stderr);
            return Self::none(reason.trim(), Some(undertaker));
        }
        let mut all = Self { mounted: vec![], missing: vec![], _undertaker: Some(undertaker) };
        for line in BufReader::new(&*up.stdout).lines().map_while(Result::ok) {
            match line.split_once(' ').expect("two words") {
                ("skip", rest) => {
                    let (name, reason) = rest.split_once(' ').unwrap_or((rest, "unknown"));
                    all.missing.push((name.to_owned(), reason.to_owned()));
                }
                (name, path) => all.mounted.push((name.to_owned(), PathBuf::from(path))),
            }
        }
        all
    }

    fn none(reason: &str, undertaker: Option<Child>) -> Self {
        let names = ROOMY.iter().chain(&["small8"]);
        let missing = names.map(|name| ((*name).to_owned(), reason.to_owned())).collect();
        Self { mounted: vec![], missing, _undertaker: undertaker }
    }

    /// Returns the root of a file system. If it is missing, records a skip of this test.
    pub fn get(&self, test: &str, name: &str) -> Option<&Path> {
        let found = self.mounted.iter().find(|(mounted, _)| mounted == name);
        if found.is_none() {
            let reason = self.missing.iter().find(|(missing, _)| missing == name);
            let reason = reason.map_or("not made by the mount script", |(_, reason)| reason);
            skip(test, &format!("no {name} to test on: {reason}"));
        }
        found.map(|(_, path)| &**path)
    }

    /// Returns the tiny disk, locked for one test at a time, because the tests measure its free space.
    pub fn small(&self, test: &str) -> Option<(fs::File, &Path)> {
        let path = self.get(test, "small8")?;
        // A failed test leaves only its own directory behind, so the next one can still run.
        Some((thalweg_testing::lock("small8"), path))
    }
}

/// Returns the free bytes of the file system of `path`, after a sync.
pub fn free(path: &Path) -> u64 {
    let folder = fs::File::open(path).unwrap();
    rustix::fs::syncfs(&folder).unwrap();
    let stat = rustix::fs::fstatvfs(&folder).unwrap();
    stat.f_bfree * stat.f_frsize
}
