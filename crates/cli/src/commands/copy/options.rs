//! From flags to the tree copier's options.

use thalweg_tree::{self as tree, CopyOptions, Dereference, Hash, Preserve, Target, When};

use crate::args::{Backup, CopyArgs, Fsync, Reflink, Sparse, Verify};

/// What the flags mean.
pub fn of(args: &CopyArgs) -> CopyOptions {
    let basis = if args.archive { CopyOptions::archive() } else { CopyOptions::default() };
    CopyOptions {
        recursive: args.recursive || args.archive,
        dereference: dereference(args).or(basis.dereference),
        preserve: if args.preserve && !args.archive { Preserve::usual() } else { basis.preserve },
        sparse: match args.sparse {
            Sparse::Auto => When::Auto,
            Sparse::Always => When::Always,
            Sparse::Never => When::Never,
        },
        reflink: match args.reflink {
            Reflink::Auto => When::Auto,
            Reflink::Always => When::Always,
            Reflink::Never => When::Never,
        },
        update: args.update,
        no_clobber: args.no_clobber,
        force: args.force,
        interactive: args.interactive,
        target: if args.target_directory.is_some() {
            Target::Directory
        } else if args.no_target_directory {
            Target::Exact
        } else {
            Target::Guess
        },
        verbose: args.verbose || args.dry_run,
        one_file_system: args.one_file_system,
        backup: match args.backup {
            None | Some(Backup::None) => tree::Backup::None,
            Some(Backup::Simple) => tree::Backup::Simple,
            Some(Backup::Numbered) => tree::Backup::Numbered,
            Some(Backup::Existing) => tree::Backup::Existing,
        },
        suffix: args.suffix.clone().unwrap_or_default(),
        jobs: args.jobs.map_or(0, |jobs| jobs as usize),
        inplace: args.inplace,
        resume: args.resume,
        verify: args.verify.map(|hash| match hash {
            Verify::Blake3 => Hash::Blake3,
            Verify::Xxh3 => Hash::Xxh3,
        }),
        fsync: match args.fsync {
            Fsync::None => tree::Fsync::None,
            Fsync::File => tree::Fsync::File,
            Fsync::Dir => tree::Fsync::Dir,
        },
        limit: args.limit.filter(|limit| *limit > 0),
        dry_run: args.dry_run,
        direct: args.choice.direct,
        request: args.choice.request(),
        needs: args.choice.needs(),
        ..basis
    }
}

fn dereference(args: &CopyArgs) -> Option<Dereference> {
    let chosen = [
        (args.no_dereference, Dereference::Never),
        (args.dereference, Dereference::Always),
        (args.dereference_args, Dereference::CommandLine),
    ];
    chosen.into_iter().find(|(on, _)| *on).map(|(_, what)| what)
}
