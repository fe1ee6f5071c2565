//! Tests that exclude patterns have the meaning that they have in git.

use crate::support;
use thalweg_testing::{Dice, from_env};

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use thalweg_tree::{ExcludePatterns, Filter};

/// Pieces of random patterns.
const PIECES: [&str; 36] = [
    "a",
    "b",
    "9",
    "x",
    "A",
    "{a,b}",
    "*",
    "**",
    "?",
    "/",
    "/",
    "/",
    "**/",
    "/**",
    "[ab]",
    "[!a]",
    "[^b]",
    "[[:digit:]]",
    "[[:alpha:]x]",
    "[a-x]",
    "[]a]",
    "[",
    "]",
    "\\",
    "\\*",
    "\\ ",
    " ",
    "\t",
    "!",
    "#",
    "[[:nope:]]",
    "[b-]",
    ",",
    "a*",
    "-",
    "\\a",
];

/// Returns a random list of patterns.
pub fn list(dice: &mut Dice) -> Vec<u8> {
    let mut list = Vec::new();
    for _ in 0..=dice.below(4) {
        for _ in 0..=dice.below(5) {
            list.extend(PIECES[dice.below(PIECES.len() as u64) as usize].as_bytes());
        }
        list.extend(if dice.below(8) == 0 { &b"\r\n"[..] } else { b"\n" });
    }
    list
}

fn make_tree(root: &Path) -> Vec<PathBuf> {
    let names = [
        "a", "b", "9", "x", "A", "{a,b}", "ab", "a b", "a ", "#", "!", "[", "]", "\\", "*", "a\t",
        "x9", "-", "aa",
    ];
    let mut paths = Vec::new();
    for name in names {
        paths.push(PathBuf::from(name).join("x"));
        for below in ["a", "b", "9", "*"] {
            paths.push(PathBuf::from(name).join("a").join(below));
            paths.push(PathBuf::from(name).join("b").join("a").join(below));
        }
    }
    for name in ["ax", "bx", "99", "a,b", "x]", "file", "A9", "a\\"] {
        paths.push(PathBuf::from(name));
    }
    for path in &paths {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), "").unwrap();
    }
    paths
}

/// Creates a directory with an empty repository. Returns `false` without git.
pub fn init_git(root: &Path) -> bool {
    fs::create_dir(root).unwrap();
    let mut git = Command::new("git");
    git.args(["init", "-q"]).arg(root).env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.output().is_ok_and(|output| output.status.success())
}

/// Returns the files that git does not exclude.
fn kept_by_git(root: &Path, list: &Path) -> BTreeSet<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "-o", "--exclude-from"]).arg(list).current_dir(root);
    let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// Returns the files that a copy does not exclude. The contents of an excluded directory are excluded too.
fn kept_by_us(paths: &[PathBuf], patterns: &ExcludePatterns) -> BTreeSet<PathBuf> {
    let is_kept = |path: &&PathBuf| {
        let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        !above.any(|above| patterns.leaves_out(above, true)) && !patterns.leaves_out(path, false)
    };
    paths.iter().filter(is_kept).cloned().collect()
}

/// Tests `THALWEG_CASES` random lists. To repeat the lists of another run, set `THALWEG_SEED`.
#[test]
fn random_pattern_lists_exclude_what_git_excludes() {
    let test = "random_pattern_lists_exclude_what_git_excludes";
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("tree");
    if !init_git(&root) {
        return support::skip(test, "git is not installed");
    }
    let paths = make_tree(&root);
    let mut dice = Dice::of_campaign(test, "THALWEG_CASES");
    let file = scratch.path().join("list");
    let mut excluding = 0;
    for case in 0..from_env("THALWEG_CASES", 400) {
        let text = list(&mut dice);
        fs::write(&file, &text).unwrap();
        let mut patterns = ExcludePatterns::default();
        patterns.add_file(&text);
        let (git, ours) = (kept_by_git(&root, &file), kept_by_us(&paths, &patterns));
        excluding += usize::from(git.len() < paths.len());
        let differ: Vec<_> = git.symmetric_difference(&ours).collect();
        assert!(differ.is_empty(), "case {case}, {:?}: {differ:?}", String::from_utf8_lossy(&text));
    }
    assert!(excluding > 20, "only {excluding} lists excluded anything");
}
