//! Runs a sync: the copy, the deletion, and the files that replace deleted directories.

use rustix::fs::{CWD, FileType, Mode, OFlags, openat, stat};
use std::{
    collections::HashSet,
    ffi::{CString, OsString},
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};
use thalweg_core::{Cancelled, atomic_file::followed::open_directory, shown};
use thalweg_sys::Errno;

use super::{
    delete::{CopyOutcome, DeleteReport, delete_extra},
    distinct::distinct,
    filter::DirectoryFilter,
    local::{LocalNames, LocalSource, with_slash},
    overlap::overlapping,
    plan::DeleteOptions,
    renames::{LocalRenames, Reference},
};
use crate::{
    CopyOptions, Dereference, Error, Event, Events, Filter, Fsync, KeptEntries, OverDirectory,
    Progress, Refusal, SyncCounts, SyncRules, Target, TreeReport, copy,
    error::at_path,
    event::Finding,
    fs::{
        beneath::FollowLinks,
        list::{NAMED_DIRECTORY, ancestors},
    },
    identity::{Id, kind},
    names::{c_string, cut},
    threads::locked,
    twins::Twins,
};

/// The options of a sync.
#[derive(Clone, Debug, Default)]
pub struct SyncOptions {
    /// The options of the copy. The target, the rules of the sync and the handling of existing files are set by
    /// [`sync`].
    pub copy: CopyOptions,
    /// Compare the bytes of files with equal sizes.
    pub checksum: bool,
    /// Delete entries that the source does not have. The filter and the dry run are those of the copy.
    pub delete: Option<DeleteOptions>,
    /// Continue although source and destination overlap.
    pub force: bool,
    /// The directory that keeps replaced and deleted entries. It is created if it does not exist.
    pub keep_in: Option<PathBuf>,
    /// Do not detect renames: copy a new file instead of linking it to an equal file that will be deleted.
    pub no_renames: bool,
    /// An earlier copy of the source. Files that did not change since then become links to its files.
    pub reference: Option<PathBuf>,
    /// The name of files in the source with patterns for the entries of their directory, as `.gitignore`.
    pub filter_file: Option<OsString>,
}

/// Result of a sync.
#[derive(Debug, Default)]
pub struct SyncReport {
    /// The report of the copy, with the counts and errors of the whole sync.
    pub tree: TreeReport,
    /// The report of the deletion, if it was requested and started.
    pub deletion: Option<DeleteReport>,
}

/// Makes the content of `destination` equal to that of one source directory. If there are several sources, or if the
/// source is not a directory, the sources become entries of the destination.
pub fn sync(
    sources: &[PathBuf],
    destination: &Path,
    options: &SyncOptions,
    events: &dyn Events,
) -> Result<SyncReport, Error> {
    let has_entries = has_entries(sources)?;
    LocalSync::new(sources, destination, options, has_entries, events)?.perform()
}

/// A sync of local directories.
pub(super) struct LocalSync<'s> {
    /// The sources, as paths that the copy receives.
    sources: Vec<PathBuf>,
    destination: PathBuf,
    names: Arc<LocalNames>,
    options: CopyOptions,
    delete: Option<DeleteOptions>,
    filter: Option<Arc<DirectoryFilter>>,
    events: &'s dyn Events,
}

impl<'s> LocalSync<'s> {
    /// Checks the operands. `has_entries`: `true` if the sources become entries of the destination.
    pub fn new(
        sources: &[PathBuf],
        destination: &Path,
        options: &SyncOptions,
        has_entries: bool,
        events: &'s dyn Events,
    ) -> Result<Self, Error> {
        let destination = final_destination(destination, has_entries)?;
        let names = Arc::new(names_of(sources, has_entries, options)?);
        if let ([source], Some(delete), true) = (sources, &options.delete, has_entries)
            && !delete.force
        {
            let why = "not a directory; --delete requires a directory";
            return Err(Error::Usage(format!("'{}': {why}", shown(source))));
        }
        if has_entries && options.delete.is_some() {
            // If two sources had one name, the deletion would remove entries that only one of them has.
            distinct(sources, &())?;
        }
        let met = overlapping(&names.sources, &destination, has_entries)?;
        if let Some(path) = met.filter(|_| !options.force) {
            let (path, reason) = (path.to_owned(), Refusal::Overlaps(destination));
            return Err(Error::Refused { path, reason });
        }
        let target = if has_entries { Target::Directory } else { Target::Exact };
        let over_directory =
            if options.delete.is_some() { OverDirectory::Defer } else { OverDirectory::Refuse };
        let rules = SyncRules { checksum: options.checksum, over_directory, has_entries };
        let caller = options.copy.filter.clone();
        let filter = filter_files(sources, options, has_entries)?;
        // A dry run does not create the directory.
        let is_there = |path: &&Path| !options.copy.dry_run || path.is_dir();
        let kept = options.keep_in.as_deref().filter(is_there);
        let kept = kept
            .map(|path| open_kept_outside(&names.sources, path, options.copy.fsync, &destination))
            .transpose()?;
        let copy = CopyOptions {
            filter: filter.clone().map_or(caller, |filter| Some(filter as Arc<dyn Filter>)),
            kept: kept.clone(),
            recursive: true,
            target,
            sync: Some(rules),
            resume: true,
            remove_destination: true,
            ..options.copy.clone()
        };
        let delete = options.delete.clone().map(|delete| DeleteOptions {
            filter: copy.filter.clone(),
            dry_run: copy.dry_run,
            fsync: copy.fsync == Fsync::Always,
            has_entries,
            one_file_system: copy.one_file_system,
            kept,
            ..delete
        });
        let copy =
            CopyOptions { twins: twins(&destination, options, &names, delete.as_ref())?, ..copy };
        let sources = if has_entries { sources.to_vec() } else { vec![with_slash(&sources[0])] };
        Ok(Self { sources, destination, names, options: copy, delete, filter, events })
    }

    /// Returns the destination, after a symbolic link was resolved.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    pub fn perform(self) -> Result<SyncReport, Error> {
        let tree = copy(&self.sources, &self.destination, &self.options, self.events)?;
        let mut report = SyncReport { tree, deletion: None };
        for error in self.filter.iter().flat_map(|filter| filter.take_errors()) {
            self.fail(error, &mut report);
        }
        if report.tree.halted.is_none() && self.delete.is_some() {
            self.delete(&mut report)?;
        }
        let deferred = std::mem::take(&mut report.tree.deferred);
        if deferred.is_empty() || report.tree.halted.is_some() {
            return Ok(report);
        }
        match &report.deletion {
            Some(DeleteReport { refused: None, .. }) => self.replace(deferred, &mut report)?,
            _ => self.give_up(&deferred, &mut report),
        }
        Ok(report)
    }

    fn delete(&self, report: &mut SyncReport) -> Result<(), Error> {
        let Some(options) = &self.delete else { return Ok(()) };
        let tree = &mut report.tree;
        // A dry run creates no directories, so the deletion would count fewer than the copy.
        let census = (!options.dry_run).then_some(tree.seen);
        let outcome = CopyOutcome { errors: tree.error_count, created: tree.sync.created, census };
        let mut deletion =
            delete_extra(&self.destination, &*self.names, options, &outcome, self.events)?;
        tree.sync.deleted = deletion.deleted;
        let errors = std::mem::take(&mut deletion.errors);
        tree.add_errors(errors.len() as u64, errors);
        tree.halted = tree.halted.or(deletion.halted);
        report.deletion = Some(deletion);
        Ok(())
    }

    /// Copies the entries that replace directories which the deletion has removed.
    fn replace(&self, deferred: Vec<PathBuf>, report: &mut SyncReport) -> Result<(), Error> {
        let over_directory =
            if self.options.dry_run { OverDirectory::AssumeGone } else { OverDirectory::Refuse };
        let rules = self.options.sync.map(|rules| SyncRules { over_directory, ..rules });
        let options = CopyOptions { sync: rules, verbose: true, ..self.options.clone() };
        let only = DeferredOnly {
            events: self.events,
            verbose: self.options.verbose,
            paths: deferred.into_iter().collect(),
            counts: Mutex::default(),
        };
        let later = copy(&self.sources, &self.destination, &options, &only)?;
        let counts = *locked(&only.counts);
        let later = if self.options.dry_run {
            // This dry run met all other new entries a second time.
            TreeReport { files: 0, links: 0, specials: 0, bytes: 0, ..later }
        } else {
            later
        };
        report.tree.join_second_walk(later, counts);
        Ok(())
    }

    /// Reports the entries that could not be copied because directories with their names still exist.
    fn give_up(&self, deferred: &[PathBuf], report: &mut SyncReport) {
        for path in deferred {
            let path = self.destination.join(path);
            self.fail(Error::Refused { path, reason: Refusal::OverDirectory }, report);
        }
    }

    fn fail(&self, error: Error, report: &mut SyncReport) {
        self.events.event(&Event::Failed(&error));
        report.tree.add_errors(1, vec![error]);
    }
}

/// Returns `true` if the sources become entries of the destination: several, or a single non-directory.
pub(super) fn has_entries(sources: &[PathBuf]) -> Result<bool, Error> {
    let [source] = sources else { return Ok(true) };
    Ok(kind(&stat(source).map_err(at_path(source, "stat"))?) != FileType::Directory)
}

/// Returns the filter that reads filter files of the source, if the caller requested filter files.
fn filter_files(
    sources: &[PathBuf],
    options: &SyncOptions,
    has_entries: bool,
) -> Result<Option<Arc<DirectoryFilter>>, Error> {
    let Some(name) = &options.filter_file else { return Ok(None) };
    if has_entries {
        return Err(Error::Usage(
            "--filter-file requires a single source, which must be a directory".to_owned(),
        ));
    }
    let caller = options.copy.filter.clone();
    let links = followed_links(options);
    let filter = DirectoryFilter::new(&sources[0], links, name.clone(), caller)?;
    Ok(Some(Arc::new(filter)))
}

/// Returns the symbolic links in the sources that are followed.
fn followed_links(options: &SyncOptions) -> FollowLinks {
    let follows = options.copy.dereference == Some(Dereference::Always);
    if follows { FollowLinks::Anywhere } else { FollowLinks::Never }
}

/// Copies one entry to another file system.
fn copy_one(from: &Path, to: &Path, fsync: Fsync) -> Result<(), Errno> {
    let options = CopyOptions { target: Target::Exact, fsync, ..CopyOptions::archive() };
    let report = copy(&[from.to_owned()], to, &options, &());
    let errors = report.map_or_else(|error| vec![error], |report| report.errors);
    errors.first().map_or(Ok(()), |error| Err(error.errno().unwrap_or(Errno::IO)))
}

/// Returns an object that finds existing files to which new files can be linked.
fn twins(
    destination: &Path,
    options: &SyncOptions,
    names: &Arc<LocalNames>,
    delete: Option<&DeleteOptions>,
) -> Result<Option<Arc<dyn Twins>>, Error> {
    if let Some(path) = &options.reference {
        let id = stat(path).ok().map(|stat| Id::of(&stat));
        if names.sources.iter().any(|source| Some(source.id) == id) {
            let why = "the reference is the source itself; name an earlier copy of it";
            return Err(Error::Usage(format!("'{}': {why}", shown(path))));
        }
        return Ok(Some(Arc::new(Reference::open(path)?)));
    }
    // Renames are not detected if replaced entries are kept: a kept file must not share its contents with a new one.
    let delete = delete.filter(|_| !options.no_renames && options.keep_in.is_none());
    Ok(delete.map(|delete| {
        Arc::new(LocalRenames {
            destination: destination.to_owned(),
            names: Arc::clone(names),
            options: delete.clone(),
            found: OnceLock::new(),
        }) as Arc<dyn Twins>
    }))
}

/// Opens the directory for entries that a sync from another machine replaces or deletes. Creates it if it does not
/// exist. It must not be the destination.
pub fn open_kept(path: &Path, fsync: Fsync, destination: &Path) -> Result<Arc<KeptEntries>, Error> {
    open_kept_outside(&[], path, fsync, destination)
}

/// Opens the directory for replaced and deleted entries, which must not be in a source or the destination itself.
fn open_kept_outside(
    sources: &[LocalSource],
    path: &Path,
    fsync: Fsync,
    destination: &Path,
) -> Result<Arc<KeptEntries>, Error> {
    let refused = |reason| Err(Error::Refused { path: path.to_owned(), reason });
    let source_above = |dir: BorrowedFd<'_>| {
        let above = ancestors(dir).map_err(at_path(path, "openat"))?;
        Ok(sources.iter().find(|source| above.contains(&source.id)))
    };
    // This check comes first, so that a refused directory is not created.
    let parent = cut(path).0;
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    if let Ok(parent) = openat(CWD, parent, NAMED_DIRECTORY, Mode::empty())
        && let Some(source) = source_above(parent.as_fd())?
    {
        return refused(Refusal::OverlapsSource(source.path.clone()));
    }
    let kept = KeptEntries::open(path, fsync, copy_one)?;
    if let Some(source) = source_above(kept.root().as_fd())? {
        return refused(Refusal::OverlapsSource(source.path.clone()));
    }
    if stat(destination).is_ok_and(|stat| kept.is(Id::of(&stat))) {
        return refused(Refusal::Overlaps(destination.to_owned()));
    }
    Ok(Arc::new(kept))
}

/// Returns the destination. A symbolic link to a directory is resolved.
fn final_destination(destination: &Path, has_entries: bool) -> Result<PathBuf, Error> {
    if has_entries && !destination.is_dir() {
        let why = "not a directory; several sources, or a file, need an existing directory";
        return Err(Error::Usage(format!("'{}': {why}", shown(destination))));
    }
    let meta = std::fs::symlink_metadata(destination);
    if !has_entries && meta.as_ref().is_ok_and(|meta| !meta.is_dir() && !meta.is_symlink()) {
        let reason = Refusal::OverNonDirectory;
        return Err(Error::Refused { path: destination.to_owned(), reason });
    }
    let is_link = meta.is_ok_and(|meta| meta.is_symlink());
    if is_link && let Ok(real) = std::fs::canonicalize(destination) {
        let opened = open_directory(destination, OFlags::PATH);
        opened.map_err(at_path(destination, "openat"))?;
        return Ok(real);
    }
    Ok(destination.to_owned())
}

/// Opens the sources. If one of several sources cannot be opened, the copy reports the error.
fn names_of(
    sources: &[PathBuf],
    has_entries: bool,
    options: &SyncOptions,
) -> Result<LocalNames, Error> {
    let dereference = options.copy.dereference.unwrap_or(Dereference::Never);
    let links = followed_links(options);
    let mut opened = Vec::new();
    for path in sources {
        let name = if has_entries { c_string(cut(path).1)? } else { CString::default() };
        let follows = !has_entries || dereference != Dereference::Never;
        match LocalSource::open(path.clone(), name, follows, links) {
            Ok(source) => opened.push(source),
            Err(error) if !has_entries => return Err(error),
            Err(_) => {}
        }
    }
    Ok(LocalNames {
        sources: opened,
        has_entries,
        follows: links == FollowLinks::Anywhere,
        one_file_system: options.copy.one_file_system,
    })
}

/// Passes on the events of deferred entries only, because the first copy has already reported the others.
struct DeferredOnly<'e> {
    events: &'e dyn Events,
    verbose: bool,
    paths: HashSet<PathBuf>,
    counts: Mutex<SyncCounts>,
}

impl Events for DeferredOnly<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Sync(change) if self.paths.contains(change.path) => {
                let mut counts = locked(&self.counts);
                counts.count(change.action);
                if self.verbose {
                    self.events.event(event);
                }
            }
            Event::Sync(_) | Event::LeftOut { .. } => {}
            event => self.events.event(event),
        }
    }

    fn finding(&self, finding: &Finding<'_>) {
        self.events.finding(finding);
    }

    fn progress(&self, progress: Progress) {
        self.events.progress(progress);
    }

    fn current(&self, source: &Path) {
        self.events.current(source);
    }

    fn ask(&self, path: &Path) -> bool {
        self.events.ask(path)
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.events.go_on()
    }
}
