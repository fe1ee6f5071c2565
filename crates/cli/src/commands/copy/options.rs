//! Converts flags to the tree copier's options.

use std::{ffi::OsString, path::Path};
use thalweg_tree::{self as tree, Becomes, CopyOptions, Target, When};

use super::args::{BackupControl, CopyArgs, ReflinkWhen, Sparse, UpdateWhen};
use crate::{
    args::find,
    exit::{CommandFailure, Exit},
    output::text::complain,
};

/// Returns the options that the flags specify.
pub fn of(args: &CopyArgs) -> Result<CopyOptions, CommandFailure> {
    let backup = backup(args)?;
    conflicts(args, backup)?;
    labels(args)?;
    Ok(CopyOptions {
        recursive: args.recursive || args.kept.archive,
        dereference: args.kept.dereference,
        preserve: args.kept.preserve,
        new_mode: args.kept.default_modes.then_some(0o666),
        sparse: args.sparse.when(),
        reflink: args.reflink.when(),
        update: args.update.map_or(tree::Update::All, UpdateWhen::rule),
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

impl Sparse {
    fn when(self) -> When {
        match self {
            Self::Auto => When::Auto,
            Self::Always => When::Always,
            Self::Never => When::Never,
        }
    }
}

impl ReflinkWhen {
    fn when(self) -> When {
        match self {
            Self::Auto => When::Auto,
            Self::Always => When::Always,
            Self::Never => When::Never,
        }
    }
}

impl UpdateWhen {
    fn rule(self) -> tree::Update {
        match self {
            Self::All => tree::Update::All,
            Self::Older => tree::Update::Older,
            Self::None => tree::Update::None,
            Self::NoneFail => tree::Update::NoneFail,
        }
    }
}

/// Returns the backup mode: `-b`, `--backup`, `-S`, and VERSION_CONTROL as in cp.
fn backup(args: &CopyArgs) -> Result<tree::Backup, CommandFailure> {
    let asked = args.backups || args.suffix.is_some();
    let control = match args.backup.or(asked.then_some(BackupControl::Unset)) {
        None => return Ok(tree::Backup::None),
        Some(BackupControl::Unset) => match std::env::var("VERSION_CONTROL") {
            Ok(word) if !word.is_empty() => find(&word).ok_or_else(|| {
                let why = "expected none, numbered, existing or simple";
                CommandFailure::new(
                    Exit::Usage,
                    format!("VERSION_CONTROL: invalid value '{word}'; {why}"),
                )
            })?,
            _ => BackupControl::Existing,
        },
        Some(given) => given,
    };
    Ok(match control {
        BackupControl::None => tree::Backup::None,
        BackupControl::Simple => tree::Backup::Simple,
        BackupControl::Numbered => tree::Backup::Numbered,
        BackupControl::Existing | BackupControl::Unset => tree::Backup::Existing,
    })
}

/// Returns the suffix of simple backups. As in cp, a suffix with a slash is ignored.
fn suffix(args: &CopyArgs) -> OsString {
    let environment = || std::env::var_os("SIMPLE_BACKUP_SUFFIX");
    let suffix = args.suffix.clone().or_else(environment).unwrap_or_default();
    if suffix.as_encoded_bytes().contains(&b'/') { OsString::new() } else { suffix }
}

/// Rejects contradictory flags.
fn conflicts(args: &CopyArgs, backup: tree::Backup) -> Result<(), CommandFailure> {
    let makes_backups = args.backup.is_some() || args.backups || backup != tree::Backup::None;
    let sparse = args.sparse != Sparse::Auto;
    for (both, what) in [
        (args.parents && args.no_target_directory, "--parents cannot be used with -T"),
        (args.link && args.symbolic_link, "cannot make both hard and symbolic links (-l, -s)"),
        (makes_backups && args.no_clobber, "--backup cannot be used with -n"),
        (args.reflink == ReflinkWhen::Always && sparse, "--reflink=always requires --sparse=auto"),
        (
            args.attributes_only && args.verify.is_some(),
            "--attributes-only cannot be used with --verify",
        ),
    ] {
        if both {
            return Err(CommandFailure::new(Exit::Usage, what));
        }
    }
    Ok(())
}

/// Checks the options for SELinux labels. Fails or warns in the cases in which cp does.
fn labels(args: &CopyArgs) -> Result<(), CommandFailure> {
    if !args.kept.preserve.context && args.context.is_none() {
        return Ok(());
    }
    let has_selinux = Path::new("/sys/fs/selinux/enforce").exists();
    if args.kept.preserve.context && !has_selinux {
        let why = "cannot preserve the security context: SELinux is not enabled";
        return Err(CommandFailure::new(Exit::Failed, why));
    }
    match &args.context {
        Some(_) if has_selinux => {
            let why = "-Z and --context are not supported";
            Err(CommandFailure::new(Exit::Unsupported, why)
                .hint("copy, then use restorecon or chcon"))
        }
        Some(label) => {
            let flag = if label.is_empty() { "-Z" } else { "--context" };
            complain(&format!("warning: {flag} is ignored: SELinux is not enabled"));
            Ok(())
        }
        None => Ok(()),
    }
}
