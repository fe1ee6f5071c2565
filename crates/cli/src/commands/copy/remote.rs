//! Copies from and to other machines: `thalweg copy -a HOST:SRC DST`.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};
use thalweg_core::{failed::quoted, shown};
use thalweg_serve::remote::{RemoteName, encode};
use thalweg_tree::{Dereference, install::FollowLinks};

use super::{CopyArgs, chosen::patterns};
use crate::{
    args::SelectionArgs,
    commands::fetch::{FetchArgs, OverStream, fetch_over},
    exit::{CommandFailure, Exit},
    remote::{
        RemoteArgs, RemoteOutput, SenderNeeds,
        direction::{Direction, not_a_directory, one_by_one, refuse_same_names},
        push, unsupported,
    },
};

/// A copy between this machine and another one.
pub struct RemoteCopy<'a> {
    args: &'a CopyArgs,
    destination: &'a Path,
    direction: Direction<'a>,
    chosen: SelectionArgs,
}

impl<'a> RemoteCopy<'a> {
    /// Returns the copy, or `None` if all paths are on this machine.
    pub fn of(
        args: &'a CopyArgs,
        sources: &'a [PathBuf],
        destination: &'a Path,
    ) -> Result<Option<Self>, CommandFailure> {
        let Some(direction) = Direction::of(sources, destination)? else { return Ok(None) };
        if let Some(option) = refused(args) {
            let why = format!("{option} cannot be used with a remote source or destination");
            return Err(CommandFailure::new(Exit::Usage, why));
        }
        let chosen = SelectionArgs::of_patterns(patterns::list(&args.chosen)?)?;
        Ok(Some(Self { args, destination, direction, chosen }))
    }

    /// Copies the sources one after the other.
    pub fn run(&self) -> Result<Exit, CommandFailure> {
        let named = |path| self.name_of(path).map(|name| (name, shown(path)));
        match &self.direction {
            Direction::Pull(names) => {
                refuse_same_names(names.iter().filter_map(|name| named(Path::new(&name.path))))?;
                if self.goes_into_directory(names.len()) && !self.destination.is_dir() {
                    return Err(not_a_directory(self.destination));
                }
                one_by_one(names, |name| {
                    self.args.remote.with_program(name, |remote| self.pull(remote, name))
                })
            }
            Direction::Push(name, sources) => {
                refuse_same_names(sources.iter().filter_map(|source| named(source)))?;
                one_by_one(sources, |source| {
                    let into_existing = self.goes_into_directory(sources.len());
                    let push = |remote: &RemoteArgs| self.push(remote, name, source, into_existing);
                    self.args.remote.with_program(name, push)
                })
            }
        }
    }

    /// Returns `true` if the destination must be a directory.
    fn goes_into_directory(&self, source_count: usize) -> bool {
        source_count > 1 || self.args.target_directory.is_some()
    }

    fn pull(&self, remote: &RemoteArgs, name: &RemoteName) -> Result<Exit, CommandFailure> {
        let args = self.args;
        let fetch = FetchArgs {
            recursive: args.recursive,
            archive: args.kept.archive,
            all_links: true,
            jobs: args.jobs,
            limit: args.limit,
            durable: args.durable,
            verbose: args.is_verbose(),
            choice: args.choice.clone(),
            shown: args.shown,
            chosen: self.chosen.clone(),
            copy_links: self.copies_links(),
            one_file_system: args.one_file_system,
            verify: args.verify.is_some(),
            no_summary: !self.is_watched(),
            ..FetchArgs::defaults()
        };
        let from = format!("{}:{}", name.host, Path::new(&name.path).display());
        let needs = SenderNeeds { hash: args.verify.is_some(), copy_links: self.copies_links() };
        let channels = remote.channels(name, needs)?;
        let into = self.name_of(Path::new(&name.path));
        fetch_over(&fetch, &OverStream { channels, from: &from, dst: self.destination, into })
    }

    fn push(
        &self,
        remote: &RemoteArgs,
        name: &RemoteName,
        source: &Path,
        into_existing: bool,
    ) -> Result<Exit, CommandFailure> {
        let args = self.args;
        let is_tree = args.recursive || args.kept.archive;
        let failed = |error: &std::io::Error| {
            CommandFailure::of_io("stat", &shown(source).to_string(), error)
        };
        if fs::metadata(source).map_err(|error| failed(&error))?.is_dir() && !is_tree {
            let why = format!("{}: is a directory", quoted(source));
            return Err(CommandFailure::new(Exit::Failed, why).hint("use -r or -a"));
        }
        let whole = fs::canonicalize(source).map_err(|error| failed(&error))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let from = format!("{host}:{}", whole.display());
        let option = |name: &str, value: &str| format!("--{name}={value}");
        let mut words = vec![
            "fetch".to_owned(),
            "--stdio".to_owned(),
            "--encoded".to_owned(),
            "--all-links".to_owned(),
            option("from", &encode(OsStr::new(&from))),
        ];
        words.extend(self.name_of(source).map(|name| option("into", &encode(name))));
        let given = [
            ("-r", is_tree),
            ("-a", args.kept.archive),
            ("-q", !self.is_watched()),
            ("-v", args.is_verbose()),
            ("--verify", args.verify.is_some()),
            ("--copy-links", self.copies_links()),
            ("--one-file-system", args.one_file_system),
            ("--into-existing", into_existing),
            ("--json", args.shown.json),
        ];
        words.extend(given.into_iter().filter(|(_, is)| *is).map(|(word, _)| word.to_owned()));
        words.extend(self.chosen.words()?);
        words.extend(args.jobs.map(|jobs| option("jobs", &jobs.to_string())));
        words.push(option("fsync", args.durable.name()));
        words.push(name.word());
        let follow = if self.copies_links() { FollowLinks::Anywhere } else { FollowLinks::Never };
        let output = RemoteOutput { log: None, prints_changes: false, prints_summary: true };
        let connections = remote.push_connections(name, words, output)?;
        push(&connections, source, &args.choice, args.limit, follow)
    }

    /// Returns the name that a source receives in an existing directory. `None` if the contents of the source are
    /// copied into the directory itself: with `-T`, or if the path of the source ends with a slash, `.` or `..`.
    fn name_of<'n>(&self, source: &'n Path) -> Option<&'n OsStr> {
        let bytes = source.as_os_str().as_bytes();
        let is_contents = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b"~";
        source.file_name().filter(|_| !is_contents && !self.args.no_target_directory)
    }

    /// Returns `true` if all symbolic links of the source are followed. A source that is a link is always followed.
    fn copies_links(&self) -> bool {
        self.args.kept.dereference == Some(Dereference::Always)
    }

    fn is_watched(&self) -> bool {
        !self.args.shown.quiet && (self.args.shown.is_watched() || self.args.is_verbose())
    }
}

/// Returns the first given option that a copy between machines does not support.
fn refused(args: &CopyArgs) -> Option<&'static str> {
    if args.verify.is_some_and(|verify| verify.device) {
        return Some("--verify=device");
    }
    if args.chosen.files_from.is_some() {
        return Some("--files-from");
    }
    if args.kept.preserve.strict {
        return Some("--preserve=xattr");
    }
    unsupported!(
        args,
        CopyArgs {
            paths recursive kept force no_target_directory target_directory strip_trailing_slashes verbose resume
            durable jobs limit remote choice shown chosen one_file_system verify
        },
        refused {
            "--attributes-only" attributes_only
            "--copy-contents" copy_contents
            "--link" link
            "--symbolic-link" symbolic_link
            "--update" update
            "--no-clobber" no_clobber
            "--interactive" interactive
            "--remove-destination" remove_destination
            "--backup" backup
            "-b" backups
            "--suffix" suffix
            "--parents" parents
            "--keep-directory-symlink" keep_directory_symlink
            "--sparse" sparse
            "--reflink" reflink
            "--context" context
            "--debug" debug
            "--manifest" manifest
            "--manifest-hash" manifest_hash
            "--inplace" inplace
            "--dry-run" dry_run
            "--tune" tune
            "--shard" fleet
        }
    )
}
