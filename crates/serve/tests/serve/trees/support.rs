//! A served directory and a destination directory.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use thalweg_core::Cancelled;
use thalweg_serve::{
    client::{
        Channels, FetchError, FetchUrl, RemoteCommand,
        tree::{TreeDestination, TreeFetched, TreeOptions, TreeWatcher, fetch_tree},
    },
    server::{RunningServer, ServeOptions},
};
use thalweg_tree::{Progress, Total};

pub use crate::support::{fetch, liar, serve as serving};

#[derive(Default)]
pub struct QuietTreeWatcher {
    pub messages: Mutex<Vec<String>>,
    /// The totals of the list.
    pub total: Mutex<Total>,
    pub last: Mutex<Option<Progress>>,
}

impl TreeWatcher for QuietTreeWatcher {
    fn total(&self, total: Total) {
        *self.total.lock().unwrap() = total;
    }

    fn progress(&self, now: Progress) -> Result<(), Cancelled> {
        *self.last.lock().unwrap() = Some(now);
        Ok(())
    }

    fn check_cancelled(&self) -> Result<(), Cancelled> {
        Ok(())
    }

    fn report(&self, message: &str) {
        self.messages.lock().unwrap().push(message.to_owned());
    }
}

pub fn options() -> TreeOptions {
    TreeOptions { jobs: 3, most_list: 1 << 30, ..TreeOptions::new(fetch::options()) }
}

pub fn get(url: &str, path: &Path, options: &TreeOptions) -> Result<TreeFetched, FetchError> {
    let target = FetchUrl::parse(url).unwrap().as_directory();
    fetch_tree(&target, TreeDestination::open(path).unwrap(), options, &QuietTreeWatcher::default())
}

/// Like [`get`]. `by_command`: `true` to make each connection by a command that relays to the
/// server.
pub fn get_over(
    url: &str,
    path: &Path,
    options: &TreeOptions,
    by_command: bool,
) -> Result<TreeFetched, FetchError> {
    let mut options = options.clone();
    if by_command {
        let address = url.trim_start_matches("http://").split('/').next().unwrap();
        let relay = format!(
            "exec 3<>/dev/tcp/{}; exec 4<&0; cat <&4 >&3 & cat <&3; kill $!",
            address.replace(':', "/")
        );
        let words = ["bash", "-c", &relay].map(Into::into).to_vec();
        let command = RemoteCommand::new(words, "relay".to_owned(), Arc::new(|_: &str| ()));
        options.files.channels = Some(Channels::by_command(command, 2));
    }
    get(url, path, &options)
}

/// A server on `root` in a scratch directory, which also holds the destination.
pub struct TreeServer {
    folder: tempfile::TempDir,
    server: RunningServer,
}

impl TreeServer {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        let server = serving::serve(&folder.path().join("root"), |options| {
            options.hidden = true;
            change(options);
        });
        Self { folder, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", serving::address(&self.server))
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    pub fn dst(&self) -> PathBuf {
        self.folder.path().join("dst")
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.root(name), bytes);
    }
}

pub fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Returns all entries below a directory: paths and descriptions. The time of a symbolic link is
/// that of the link itself.
pub fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let itself = root.join(&folder);
        all.insert(folder.clone(), shown(&itself));
        for entry in fs::read_dir(&itself).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root.join(&path).symlink_metadata().unwrap().is_dir() {
                folders.push(path);
            } else {
                all.insert(path.clone(), shown(&root.join(&path)));
            }
        }
    }
    all
}

fn shown(path: &Path) -> String {
    let meta = path.symlink_metadata().unwrap();
    let time = format!("{}.{}", meta.mtime(), meta.mtime_nsec());
    let mode = meta.permissions().mode() & 0o7777;
    if meta.is_symlink() {
        return format!("link {} {time}", fs::read_link(path).unwrap().display());
    }
    if meta.is_dir() {
        return format!("folder {mode:o} {time}");
    }
    // If the file is unreadable, only its size is compared.
    let sum = fs::read(path).map(|bytes| fnv(&bytes)).unwrap_or_default();
    format!("file {mode:o} {time} {} {sum:x}", meta.len())
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
