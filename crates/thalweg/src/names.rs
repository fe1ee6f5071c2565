//! Files and directories, by name.

use std::path::{Path, PathBuf};
use thalweg_tree::{CopyOptions, Ending, Events, Fsync, Hash, Preserve, Target, TreeReport, fleet};

use crate::{Error, Result, saved};

/// Copies one file to this path, with its permission bits.
///
/// The destination appears under its name only when the copy is complete. An existing file is replaced. Symbolic links are
/// followed, at both paths.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
/// # std::fs::write(&from, "some bytes")?;
/// let report = thalweg::copy_file(&from, &to)?;
/// println!("{} bytes by {}", report.bytes, report.main().map_or("nothing", |share| share.mechanism));
/// # assert_eq!(std::fs::read(&to)?, b"some bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The error names the file, the call and the reason. [`Error::Incomplete`] is also returned if the source changed during the
/// copy.
pub fn copy_file(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<TreeReport> {
    run(from.as_ref(), to.as_ref(), CopyOptions { jobs: 1, ..CopyOptions::default() }, &())
}

/// Copies a directory recursively to this path, like `cp -a`. Symbolic links are copied as links. Times, owners, extended
/// attributes and access control lists are kept. Start the copy with [`CopyTree::run`].
///
/// A new directory appears under its name only when the copy is complete. If the directory already exists, the files are merged
/// into it one by one.
///
/// ```
/// use thalweg::Hash;
///
/// # let folder = tempfile::tempdir()?;
/// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
/// # std::fs::create_dir_all(from.join("sub"))?;
/// # std::fs::write(from.join("sub/file"), "some bytes")?;
/// let report = thalweg::copy_tree(&from, &to).verify(Hash::Xxh3).run()?;
/// assert_eq!((report.files, report.bytes), (1, 10));
/// # assert_eq!(std::fs::read(to.join("sub/file"))?, b"some bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy_tree(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> CopyTree {
    CopyTree { from: from.into(), to: to.into(), options: CopyOptions::archive() }
}

/// A configured copy of a directory tree; see [`copy_tree`].
///
/// ```
/// use thalweg::{Fsync, Hash};
///
/// # let folder = tempfile::tempdir()?;
/// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// thalweg::copy_tree(&from, &to)
///     .contents_only() // no owners, times, extended attributes
///     .verify(Hash::Blake3) // read everything again and compare
///     .resume() // continue an interrupted run
///     .fsync(Fsync::Always) // on stable storage when it returns
///     .threads(2)
///     .run()?;
/// # assert!(to.is_dir());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is copied before `run`"]
pub struct CopyTree {
    from: PathBuf,
    to: PathBuf,
    options: CopyOptions,
}

impl CopyTree {
    /// Keeps only the permission bits, as `cp -r` does.
    pub fn contents_only(mut self) -> Self {
        self.options.preserve = Preserve::default();
        self
    }

    /// Reads every copy again and compares it with its source. A copy that differs is removed.
    pub fn verify(mut self, hash: Hash) -> Self {
        self.options.verify = Some(hash);
        self
    }

    /// Continues an interrupted earlier run that used `resume` too. If this run is interrupted, a later run can continue it.
    pub fn resume(mut self) -> Self {
        self.options.resume = true;
        self
    }

    /// Skips existing files.
    pub fn no_clobber(mut self) -> Self {
        self.options.no_clobber = true;
        self
    }

    /// Sets the data that must be on stable storage on return. By default this is only the data of replaced files, so that a
    /// power failure leaves either the old or the new contents.
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.options.fsync = fsync;
        self
    }

    /// Sets the number of threads. 0, the default, means one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.jobs = threads;
        self
    }

    /// Limits the total rate of all threads, in bytes per second.
    pub fn limit(mut self, bytes_per_second: u64) -> Self {
        self.options.limit = Some(bytes_per_second);
        self
    }

    /// Changes any other option of the copy.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// thalweg::copy_tree(&from, &to).with(|options| options.one_file_system = true).run()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut CopyOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Runs the copy.
    ///
    /// # Errors
    /// [`Error::Tree`] if the copy did not start. [`Error::Incomplete`] with the report if individual files could not be copied,
    /// differ from their source, or changed during the copy. All other files are copied in that case.
    pub fn run(self) -> Result<TreeReport> {
        self.run_watched(&())
    }

    /// Runs the copy. Reports progress to `events` and asks it whether to continue.
    ///
    /// ```
    /// use thalweg::{Cancelled, Error, Events};
    ///
    /// struct Stopped;
    ///
    /// impl Events for Stopped {
    ///     fn go_on(&self) -> Result<(), Cancelled> {
    ///         Err(Cancelled)
    ///     }
    /// }
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("file"), "some bytes")?;
    /// let stopped = thalweg::copy_tree(&from, &to).run_watched(&Stopped);
    /// assert!(matches!(stopped, Err(Error::Incomplete(_))));
    /// assert!(!to.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`CopyTree::run`]; also [`Error::Incomplete`] if `events` cancelled the copy.
    pub fn run_watched(self, events: &dyn Events) -> Result<TreeReport> {
        run(&self.from, &self.to, self.options, events)
    }

    /// Takes part in a copy by several processes between these two directories, on one or more machines. The destination must
    /// not exist. If an earlier attempt was interrupted, this call continues it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use thalweg::fleet::{FleetEnd, Member};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("file"), "some bytes")?;
    /// let member = Member::new(0, 1, Duration::from_secs(60)); // the first of one
    /// let report = thalweg::copy_tree(&from, &to).work(&member, &())?;
    /// assert_eq!((report.end, report.files), (FleetEnd::Finished, 1));
    /// # assert_eq!(std::fs::read(to.join("file"))?, b"some bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Tree`] if the copy did not start. The report contains the errors of single files, and how much of
    /// the copy is done.
    pub fn work(self, member: &fleet::Member, events: &dyn Events) -> Result<fleet::FleetReport> {
        let options = measured(self.options);
        Ok(fleet::work(&self.from, &self.to, &options, member, events)?)
    }
}

/// Adds the measurements of this machine to the options.
fn measured(options: CopyOptions) -> CopyOptions {
    let profile = options.profile.or_else(|| saved::profile().cloned());
    CopyOptions { profile, ..options }
}

fn run(from: &Path, to: &Path, options: CopyOptions, events: &dyn Events) -> Result<TreeReport> {
    let options = CopyOptions { target: Target::Exact, ..measured(options) };
    let report = thalweg_tree::copy(&[from.to_owned()], to, &options, events)?;
    match report.ending() {
        Ending::Done => Ok(report),
        _ => Err(Error::Incomplete(Box::new(report))),
    }
}
