//! Converts flags to the tree copier's options.

use std::{ffi::OsString, path::Path};
use thalweg_tree::{self as tree, Becomes, CopyOptions, Target, When};

use super::args::{Backup, CopyArgs, Reflink, Sparse, Update};
use crate::{
    args::find,
    exit::{Exit, Failure},
    output::text::complain,
};

/// Returns the options that the flags specify.
pub fn of(args: &CopyArgs) -> Result<CopyOptions, Failure> {
    let backup = backup(args)?;
    conflicts(args, backup)?;
    labels(args)?;
    Ok(CopyOptions {
        recursive: args.recursive || args.kept.archive,
        dereference: args.kept.dereference,
        preserve: args.kept.preserve,
        new_mode: args.kept.default_modes.then_some(0o666),
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
        update: match args.update {
            None | Some(Update::All) => tree::Update::All,
            Some(Update::Older) => tree::Update::Older,
            Some(Update::None) => tree::Update::None,
            Some(Update::NoneFail) => tree::Update::NoneFail,
        },
        no_clobber: args.no_clobber,
        force: args.force,
        interactive: args.interactive,
        becomes: match (args.link, args.symbolic_link) {
            (true, _) => Becomes::HardLink,
            (false, true) => Becomes::SymbolicLink,
            (false, false) => Becomes::Copy,
        },
        attributes_only: args.attributes_only,
        copy_contents: args.copy_contents,
        remove_destination: args.remove_destination,
        through_dangling: std::env::var_os("POSIXLY_CORRECT").is_some(),
        keep_directory_symlink: args.keep_directory_symlink,
        parents: args.parents,
        target: if args.target_directory.is_some() {
            Target::Directory
        } else if args.no_target_directory {
            Target::Exact
        } else {
            Target::Guess
        },
        verbose: args.is_verbose() || args.dry_run,
        one_file_system: args.one_file_system,
        backup,
        suffix: suffix(args),
        jobs: args.jobs.map_or(0, |jobs| jobs as usize),
        inplace: args.inplace,
        resume: args.resume,
        verify: args.verify.map(|verify| verify.hash),
        verify_device: args.verify.is_some_and(|verify| verify.device),
        list: args.manifest.clone(),
        fsync: args.durable.wanted(),
        limit: args.limit.filter(|limit| *limit > 0),
        dry_run: args.dry_run,
        direct: args.choice.direct,
        request: args.choice.request(),
        needs: args.choice.needs(),
        ..CopyOptions::default()
    })
}

/// Returns the backup mode: `-b`, `--backup`, `-S`, and VERSION_CONTROL as in cp.
fn backup(args: &CopyArgs) -> Result<tree::Backup, Failure> {
    let asked = args.backups || args.suffix.is_some();
    let control = match args.backup.or(asked.then_some(Backup::Unsaid)) {
        None => return Ok(tree::Backup::None),
        Some(Backup::Unsaid) => match std::env::var("VERSION_CONTROL") {
            Ok(word) if !word.is_empty() => find(&word).ok_or_else(|| {
                let why = "none, numbered, existing or simple";
                Failure::new(Exit::Usage, format!("VERSION_CONTROL is '{word}', not {why}"))
            })?,
            _ => Backup::Existing,
        },
        Some(said) => said,
    };
    Ok(match control {
        Backup::None => tree::Backup::None,
        Backup::Simple => tree::Backup::Simple,
        Backup::Numbered => tree::Backup::Numbered,
        Backup::Existing | Backup::Unsaid => tree::Backup::Existing,
    })
}

/// Returns the suffix of simple backups. As in cp, a suffix with a slash is ignored.
fn suffix(args: &CopyArgs) -> OsString {
    let environment = || std::env::var_os("SIMPLE_BACKUP_SUFFIX");
    let said = args.suffix.clone().or_else(environment).unwrap_or_default();
    if said.as_encoded_bytes().contains(&b'/') { OsString::new() } else { said }
}

/// Rejects contradictory flags.
fn conflicts(args: &CopyArgs, backup: tree::Backup) -> Result<(), Failure> {
    let makes_backups = args.backup.is_some() || args.backups || backup != tree::Backup::None;
    let sparse = args.sparse != Sparse::Auto;
    for (both, what) in [
        (
            args.parents && args.no_target_directory,
            "--parents and -T: paths are kept below a folder",
        ),
        (args.link && args.symbolic_link, "-l and -s: a file becomes one kind of link"),
        (makes_backups && args.no_clobber, "--backup and -n: what is never replaced has no backup"),
        (args.reflink == Reflink::Always && sparse, "--reflink=always takes --sparse=auto only"),
        (
            args.attributes_only && args.verify.is_some(),
            "--attributes-only moves no bytes to --verify",
        ),
    ] {
        if both {
            return Err(Failure::new(Exit::Usage, what));
        }
    }
    Ok(())
}

/// Handles SELinux labels: fails or warns in the cases in which cp does.
fn labels(args: &CopyArgs) -> Result<(), Failure> {
    let has_selinux = Path::new("/sys/fs/selinux/enforce").exists();
    if args.kept.preserve.context && !has_selinux {
        let why = "cannot preserve a security context: this kernel has no SELinux enabled";
        return Err(Failure::new(Exit::Failed, why));
    }
    match &args.context {
        Some(_) if has_selinux => {
            let why = "-Z and --context are not supported; copy, then use restorecon or chcon";
            Err(Failure::new(Exit::Unsupported, why))
        }
        Some(label) => {
            let flag = if label.is_empty() { "-Z" } else { "--context" };
            complain(&format!("{flag} is ignored: this kernel has no SELinux enabled"));
            Ok(())
        }
        None => Ok(()),
    }
}
