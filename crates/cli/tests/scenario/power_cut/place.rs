//! The directories and images of one command on one file system: a read-only source, a mount point, an empty disk.

use std::{
    fs::{self, File, FileTimes},
    os::unix::{
        fs::{MetadataExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use super::{
    command::{CutCase, CutCommand},
    contents::{Hashes, entries, first_difference, hashes, names},
    sync::SyncKind,
    system::{DiskSystem, copy_image},
};
use crate::support::{
    Scratch, Served, bytes,
    loop_disk::{LoopDevice, MountedDisk, mount_memory},
    run,
};

/// The directories and images. The order of the fields matters: it is the order in which they are dropped.
pub struct Place {
    served: Option<Served>,
    _source: MountedDisk,
    source_number: u64,
    new: Hashes,
    new_entries: String,
    new_names: String,
    old: Hashes,
    _undertaker: Undertaker,
    memory: PathBuf,
    _scratch: Scratch,
}

/// The number of the loop device of the source, and the port of the server.
pub struct FormerPlace {
    pub loop_number: u64,
    pub port: String,
}

/// Unmounts and detaches everything below a directory when this process ends, however it ends.
struct Undertaker(Child);

impl Undertaker {
    fn of(folder: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/setup/power-cut");
        // The clean-up runs in a new process group, so that Ctrl-C ends only the tests.
        let child = Command::new("sh")
            .args(["-c", "trap '' HUP; read -r _; exec \"$1\" clean \"$2\"", "sh"])
            .args([&script, folder])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh");
        Self(child)
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

impl Place {
    /// Makes the source, and a disk that is empty or has old files.
    pub fn new(case: &CutCase, system: &DiskSystem) -> Self {
        let bare = Bare::new();
        let image = bare.memory.join("source.img");
        DiskSystem::named("ext4").make(&image);
        let device = LoopDevice::attach(&image);
        let mount = MountedDisk::of_device(device, &bare.memory.join("source"), "noatime").unwrap();
        plant(&bare.memory.join("source/tree"), 0, NEW);
        drop(mount);
        bare.furnish(case, None, |memory| {
            let (fresh, base) = (memory.join("fresh.img"), memory.join("base.img"));
            system.make(&fresh);
            if case.replaces {
                let options = system.options;
                let disk = MountedDisk::of_image(&fresh, &memory.join("disk"), options).unwrap();
                plant(&memory.join("disk/copy"), 100, OLD);
                fs::remove_file(memory.join("disk/copy/new")).unwrap();
                fs::remove_dir_all(memory.join("disk/copy/deep/new")).unwrap();
                drop(disk);
            }
            if let Some(kind) = case.sync_kind() {
                let options = system.options;
                let disk = MountedDisk::of_image(&fresh, &memory.join("disk"), options).unwrap();
                kind.prepare(&memory.join("source/tree"), &memory.join("disk"));
                drop(disk);
            }
            copy_image(&fresh, &base);
            fs::remove_file(&fresh).unwrap();
        })
    }

    /// Restores the directories and images of a failing cut.
    pub fn restore(case: &CutCase, kept: &Path, former: &FormerPlace) -> Self {
        let bare = Bare::new();
        for name in ["source.img", "base.img"] {
            copy_image(&kept.join(name), &bare.memory.join(name));
        }
        bare.furnish(case, Some(former), |_| {})
    }

    /// Returns the properties of this place that a journal may have recorded.
    pub fn former(&self) -> FormerPlace {
        let port = self.served.as_ref().map_or("0", Served::port).to_owned();
        FormerPlace { loop_number: self.source_number, port }
    }

    pub fn memory(&self) -> &Path {
        &self.memory
    }

    pub fn base(&self) -> PathBuf {
        self.memory.join("base.img")
    }

    /// Returns the memory, in bytes, that the image of the empty disk uses.
    pub fn allocated_bytes(&self) -> u64 {
        fs::metadata(self.base()).unwrap().blocks() * 512
    }

    /// The mount point of the disk.
    pub fn disk(&self) -> PathBuf {
        self.memory.join("disk")
    }

    pub fn copy(&self) -> PathBuf {
        self.disk().join("copy")
    }

    pub fn tree(&self) -> PathBuf {
        self.memory.join("source/tree")
    }

    /// Returns the regular files directly in the tree, not those in its subdirectories.
    pub fn files(&self) -> Vec<PathBuf> {
        flat(&self.new).map(|path| self.tree().join(path)).collect()
    }

    pub fn urls(&self) -> Vec<String> {
        flat(&self.new).map(|path| self.url(&format!("tree/{}", &path[2..]))).collect()
    }

    pub fn url(&self, path: &str) -> String {
        self.served.as_ref().map_or_else(String::new, |served| served.at(path))
    }

    /// The hashes that the destination must have in the end.
    pub fn expected(&self, case: &CutCase) -> Hashes {
        let is_emptied = case.sync_kind().is_some_and(SyncKind::deletes);
        let mut all = if is_emptied { Hashes::new() } else { self.old_hashes(case).clone() };
        let is_wanted = |path: &String| case.copies_tree() || !path[2..].contains('/');
        all.extend(self.new.clone().into_iter().filter(|(path, _)| is_wanted(path)));
        all
    }

    pub fn old_hashes(&self, case: &CutCase) -> &Hashes {
        static NONE: LazyLock<Hashes> = LazyLock::new(Hashes::new);
        if case.replaces { &self.old } else { &NONE }
    }

    /// Checks that the destination has all files, names and attributes of the source.
    pub fn judge_copy(&self, case: &CutCase, found: &Hashes) -> Result<(), String> {
        for (path, hash) in &self.expected(case) {
            match found.get(path) {
                None => return Err(format!("{path} is missing")),
                Some(other) if other != hash => return Err(format!("{path} has other bytes")),
                Some(_) => {}
            }
        }
        if let Some(path) = found.keys().find(|path| !self.expected(case).contains_key(*path)) {
            return Err(format!("{path} is not of the source"));
        }
        if !case.copies_tree() {
            return Ok(());
        }
        let difference = if case.keeps_attributes() {
            first_difference(&self.new_entries, &entries(&self.copy())?)
        } else {
            // A cut between the link and the rename of a hard link leaves a hidden name, which no later run removes.
            let found = names(&self.copy())?;
            let is_own = |line: &&str| case.sync_kind().is_none() || !line.contains(".thalweg-");
            let found: String =
                found.lines().filter(is_own).flat_map(|line| [line, "\n"]).collect();
            first_difference(&self.new_names, &found)
        };
        difference.map_or(Ok(()), Err)
    }
}

/// The tmpfs with all images and mount points.
struct Bare {
    undertaker: Undertaker,
    memory: PathBuf,
    scratch: Scratch,
}

impl Bare {
    fn new() -> Self {
        let scratch = Scratch::new();
        let memory = scratch.folder("memory");
        let undertaker = Undertaker::of(&memory);
        mount_memory(&memory, "size=2G,mode=700");
        for name in ["source", "disk", "fuse"] {
            fs::create_dir(memory.join(name)).unwrap();
        }
        Self { undertaker, memory, scratch }
    }

    fn furnish(self, case: &CutCase, former: Option<&FormerPlace>, fill: impl Fn(&Path)) -> Place {
        let folder = self.memory.join("source");
        let image = self.memory.join("source.img");
        let device = LoopDevice::attach_at(&image, former.map(|former| former.loop_number));
        let source_number = device.number();
        let source = MountedDisk::of_device(device, &folder, "ro,noatime").unwrap();
        fill(&self.memory);
        let disk =
            MountedDisk::of_image(&self.memory.join("base.img"), &self.memory.join("disk"), "ro");
        let old =
            disk.map(|_disk| hashes(&self.memory.join("disk/copy")).unwrap()).unwrap_or_default();
        let is_served = matches!(case.command, CutCommand::Fetch | CutCommand::FetchTree);
        let served = is_served.then(|| match former {
            Some(former) => {
                Served::at_port(&folder, &former.port).expect("a server at the old port")
            }
            None => Served::on(&folder),
        });
        let tree = folder.join("tree");
        let new = hashes(&tree).unwrap();
        let (memory, scratch) = (self.memory, self.scratch);
        let undertaker = self.undertaker;
        Place {
            served,
            _source: source,
            source_number,
            new,
            new_entries: entries(&tree).unwrap(),
            new_names: names(&tree).unwrap(),
            old,
            _undertaker: undertaker,
            memory,
            _scratch: scratch,
        }
    }
}

fn flat(all: &Hashes) -> impl Iterator<Item = &String> {
    all.keys().filter(|path| !path[2..].contains('/'))
}

const NEW: u64 = 1_700_000_000;
const OLD: u64 = 1_600_000_000;

/// Makes a tree. Its bytes depend on `seed`, its sizes do not, and its modification times start at `time`.
fn plant(tree: &Path, seed: u64, time: u64) {
    fs::create_dir_all(tree.join("deep/new")).unwrap();
    let sizes = [("empty", 0), ("byte", 1), ("page", 4096), ("middle", 300 << 10), ("new", 70_000)];
    for (n, (name, len)) in (seed..).zip(sizes) {
        bytes::write(&tree.join(name), n, len);
    }
    for n in 0..6 {
        bytes::write(&tree.join(format!("deep/{n}")), seed + 10 + n, n * 7000);
        bytes::write(&tree.join(format!("deep/new/{n}")), seed + 20 + n, n * 3000);
    }
    let image = tree.join("image");
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    bytes::write_at(&image, seed + 30, 0, 1 << 20);
    bytes::write_at(&image, seed + 30, 5 << 20, 2 << 20);
    fs::hard_link(tree.join("page"), tree.join("second")).unwrap();
    symlink("deep/1", tree.join("link")).unwrap();
    let found = run(Command::new("find")
        .arg(tree)
        .args(["-depth", "(", "-type", "f", "-o", "-type", "d", ")"]))
    .expect(0);
    for (n, path) in (0..).zip(String::from_utf8_lossy(&found.stdout).lines()) {
        let modified = SystemTime::UNIX_EPOCH + Duration::new(time + n, 123_456_789);
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
    }
}
