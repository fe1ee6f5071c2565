//! Files and directories, by name.

use std::path::{Path, PathBuf};
use thalweg_tree::{CopyOptions, Ending, Events, Fsync, Hash, Preserve, Target, TreeReport, fleet};

use crate::{Error, Result, saved};

/// Copies one file to this name, with its permission bits.
///
/// The copy appears under its name when it is whole; a file that was there is replaced. A symbolic
/// link is followed.
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
/// Names the file, the call and the reason; [`Error::Incomplete`] also if the source changed meanwhile.
pub fn copy_file(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<TreeReport> {
    run(from.as_ref(), to.as_ref(), CopyOptions { jobs: 1, ..CopyOptions::default() }, &())
}

/// Copies a directory with all it holds to this name: links as links, times, owners, extended
/// attributes and access control lists kept, as `cp -a` does. The result runs with [`CopyTree::run`].
///
/// A new directory appears under its name when all of it is there. Where there is a directory
/// already, the files are merged into it, one by one.
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

/// A copy of a tree that is still to be run, see [`copy_tree`].
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
///     .resume() // go on where an earlier run was interrupted
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
    /// Takes over permission bits only, as `cp -r` does.
    pub fn contents_only(mut self) -> Self {
        self.options.preserve = Preserve::default();
        self
    }

    /// Reads every copy again and compares it with its source. A copy that differs is not kept.
    pub fn verify(mut self, hash: Hash) -> Self {
        self.options.verify = Some(hash);
        self
    }

    /// Goes on where an earlier run with `resume` was interrupted, and leaves what a later one can go
    /// on from.
    pub fn resume(mut self) -> Self {
        self.options.resume = true;
        self
    }

    /// Leaves files that exist as they are.
    pub fn no_clobber(mut self) -> Self {
        self.options.no_clobber = true;
        self
    }

    /// What must be on stable storage when it returns. By default the data of replaced files only, so that a power cut
    /// leaves the old contents or the new.
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.options.fsync = fsync;
        self
    }

    /// So many threads; 0, as from the start, means as many as there are processors.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.jobs = threads;
        self
    }

    /// No more bytes per second than this, over all threads.
    pub fn limit(mut self, bytes_per_second: u64) -> Self {
        self.options.limit = Some(bytes_per_second);
        self
    }

    /// Everything else that can be asked of a copy.
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

    /// Copies.
    ///
    /// # Errors
    /// [`Error::Tree`] if nothing was begun; [`Error::Incomplete`] with the report if single files
    /// could not be copied, differ, or changed meanwhile. The other files are copied then.
    pub fn run(self) -> Result<TreeReport> {
        self.run_watched(&())
    }

    /// Copies, telling `events` how far it is, and asking whether to go on.
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
    /// As of [`CopyTree::run`]; [`Error::Incomplete`] if it was not to go on.
    pub fn run_watched(self, events: &dyn Events) -> Result<TreeReport> {
        run(&self.from, &self.to, self.options, events)
    }

    /// Works on the copy together with whoever else does so for the same two folders, here or on other machines. The
    /// destination must not be there; what is left of an earlier attempt is gone on with.
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
    /// [`Error::Tree`] if nothing was begun. What went wrong with single files, and what is left, is in the report.
    pub fn work(self, member: &fleet::Member, events: &dyn Events) -> Result<fleet::FleetReport> {
        let options = measured(self.options);
        Ok(fleet::work(&self.from, &self.to, &options, member, events)?)
    }
}

/// With what was measured on this machine.
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
