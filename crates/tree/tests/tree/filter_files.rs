//! Tests that filter files exclude the files which `git ls-files --exclude-per-directory` excludes.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use thalweg_testing::{Dice, from_env};
use thalweg_tree::{
    CopyOptions, ExcludePatterns,
    sync::{SyncOptions, sync},
};

use crate::{
    exclude::{init_git, list},
    support,
};

/// Directories that may have a filter file.
const DIRECTORIES: [&str; 6] = ["", "a", "a/b", "a/b/a", "b", "9"];
const NAME: &str = ".f";

fn make_tree(root: &Path) {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory)).unwrap();
        for name in ["x", "9x", "a ", "[", "A", "ab"] {
            fs::write(root.join(directory).join(name), "").unwrap();
        }
    }
}

/// Gives half of the directories a random filter file. Returns their texts.
fn write_lists(root: &Path, dice: &mut Dice) -> Vec<String> {
    let mut texts = Vec::new();
    for directory in DIRECTORIES {
        let path = root.join(directory).join(NAME);
        let _ = fs::remove_file(&path);
        if dice.below(2) == 0 {
            let text = list(dice);
            fs::write(path, &text).unwrap();
            texts.push(format!("{directory}/{NAME}: {:?}", String::from_utf8_lossy(&text)));
        }
    }
    texts
}

fn kept_by_git(root: &Path) -> BTreeSet<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "-o", "--exclude-per-directory", NAME]).current_dir(root);
    let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

fn kept_by_us(root: &Path, copy: &Path) -> BTreeSet<PathBuf> {
    let mut repository = ExcludePatterns::default();
    repository.add(b"/.git");
    let filter_file = Some(NAME.into());
    let options =
        CopyOptions { jobs: 1, filter: Some(Arc::new(repository)), ..CopyOptions::default() };
    let options = SyncOptions { copy: options, filter_file, ..SyncOptions::default() };
    let report = sync(&[root.to_owned()], copy, &options, &()).unwrap();
    assert_eq!(report.tree.error_count, 0);
    let mut found = BTreeSet::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(copy.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    found
}

/// Tests `THALWEG_CASES` random sets of files. To repeat the sets of another run, set `THALWEG_SEED`.
#[test]
fn filter_files_exclude_what_git_excludes() {
    let test = "filter_files_exclude_what_git_excludes";
    let scratch = tempfile::tempdir().unwrap();
    let (root, copy) = (scratch.path().join("tree"), scratch.path().join("copy"));
    if !init_git(&root) {
        return support::skip(test, "git is not installed");
    }
    make_tree(&root);
    let mut dice = Dice::of_campaign(test, "THALWEG_CASES");
    let mut excluding = 0;
    for case in 0..from_env("THALWEG_CASES", 200) {
        let texts = write_lists(&root, &mut dice);
        let (git, ours) = (kept_by_git(&root), kept_by_us(&root, &copy));
        fs::remove_dir_all(&copy).unwrap();
        excluding += usize::from(git.len() < 6 * DIRECTORIES.len() + texts.len());
        let differ: Vec<_> = git.symmetric_difference(&ours).collect();
        assert!(differ.is_empty(), "case {case}, {texts:?}: {differ:?}");
    }
    assert!(excluding > 20, "only {excluding} sets excluded anything");
}

/// Patterns need more memory than their text. Each of these files needs 18 MiB.
#[test]
fn filter_files_that_need_too_much_memory_count_as_unreadable() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, copy) = (scratch.path().join("tree"), scratch.path().join("copy"));
    let directories = ["a", "b", "c", "d"];
    for directory in directories {
        fs::create_dir_all(root.join(directory)).unwrap();
        fs::write(root.join(directory).join(NAME), b"[x]".repeat(300_000)).unwrap();
        fs::write(root.join(directory).join("x"), "").unwrap();
    }
    let options = CopyOptions { jobs: 1, ..CopyOptions::default() };
    let options =
        SyncOptions { copy: options, filter_file: Some(NAME.into()), ..Default::default() };
    let report = sync(&[root], &copy, &options, &()).unwrap();
    assert_eq!(report.tree.error_count, 1, "{:?}", report.tree.errors);
    assert!(report.tree.errors[0].to_string().contains("64 MiB"), "{:?}", report.tree.errors);
    let copied = directories.iter().filter(|name| copy.join(name).join("x").exists());
    assert_eq!(copied.count(), 3);
}
