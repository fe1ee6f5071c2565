//! Tests that `count` returns the total that a copy reports as settled at its end.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_tree::{CopyOptions, Events, Filter, Progress, Total, Update, copy, count};

#[derive(Default)]
struct Last(Mutex<Progress>);

impl Events for Last {
    fn progress(&self, progress: Progress) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.settled.files >= last.settled.files {
            *last = progress;
        }
    }
}

fn counted(at: &Path, options: &CopyOptions) -> Option<Total> {
    count(&[at.join("src")], options, &|| Ok(()))
}

#[test]
fn what_was_counted_is_what_a_run_has_settled_whatever_became_of_each_file() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    fs::create_dir_all(at.join("src/deep/er")).unwrap();
    fs::write(at.join("src/small"), [1; 1000]).unwrap();
    fs::write(at.join("src/deep/large"), vec![2; 3 << 20]).unwrap();
    fs::hard_link(at.join("src/small"), at.join("src/deep/er/again")).unwrap();
    symlink("small", at.join("src/link")).unwrap();
    let hole = fs::File::create(at.join("src/hole")).unwrap();
    hole.set_len(5 << 20).unwrap();
    let options = CopyOptions::archive();
    let total = counted(at, &options).unwrap();
    assert_eq!(total, Total { files: 4, bytes: 2000 + (3 << 20) + (5 << 20) });
    // The first run copies the files, and the second run skips them.
    for update in [Update::All, Update::Older] {
        let options =
            CopyOptions { update, target: thalweg_tree::Target::Exact, ..options.clone() };
        let last = Last::default();
        copy(&[at.join("src")], &at.join("dst"), &options, &last).unwrap();
        let settled = last.0.into_inner().unwrap().settled;
        assert_eq!(settled, total, "{update:?}");
    }
}

/// If two workers meet two names of one file at the same time, one name waits for the other. A worker visits it twice.
#[test]
fn a_name_that_waits_for_the_copy_of_another_is_counted_once() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    fs::create_dir(at.join("src")).unwrap();
    fs::write(at.join("src/large"), vec![3; 3 << 20]).unwrap();
    for n in 0..30 {
        let below = at.join("src").join(n.to_string());
        fs::create_dir(&below).unwrap();
        fs::hard_link(at.join("src/large"), below.join("name")).unwrap();
    }
    let options = CopyOptions { jobs: 8, ..CopyOptions::archive() };
    let total = counted(at, &options).unwrap();
    for round in 0..10 {
        let last = Last::default();
        copy(&[at.join("src")], &at.join(format!("dst-{round}")), &options, &last).unwrap();
        assert_eq!(last.0.into_inner().unwrap().settled, total, "round {round}");
    }
}

#[test]
fn a_count_that_is_stopped_or_leads_too_deep_gives_no_total() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let mut deep = at.join("src");
    for _ in 0..1200 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(counted(at, &CopyOptions::archive()), None);
    assert_eq!(
        count(&[at.join("src")], &CopyOptions::archive(), &|| Err(thalweg_core::Cancelled)),
        None
    );
    let flat = CopyOptions::default();
    assert_eq!(counted(at, &flat), Some(Total::default()));
}

/// Excludes directories named `out`, and the entry `not` at the top.
#[derive(Debug)]
struct Outs;

impl Filter for Outs {
    fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        is_directory && path.ends_with("out") || path == Path::new("not")
    }
}

#[test]
fn what_a_filter_leaves_out_is_not_counted_of_trees_and_of_names_in_one() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    for name in ["out/a", "deep/out/b", "deep/not", "deep/c", "not", "d"] {
        let path = at.join("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [1; 1000]).unwrap();
    }
    fs::create_dir(at.join("to")).unwrap();
    let filter = Some(Arc::new(Outs) as Arc<dyn Filter>);
    let tree = CopyOptions { filter, ..CopyOptions::archive() };
    let inside = CopyOptions { inside: Some(at.join("src")), ..tree.clone() };
    let named = ["out/a", "deep", "not", "d"].map(Into::into);
    // Both copies process deep/not, deep/c and d, and nothing else.
    for (sources, options) in [(&[at.join("src")][..], &tree), (&named, &inside)] {
        let last = Last::default();
        let total = count(sources, options, &|| Ok(()));
        assert_eq!(total, Some(Total { files: 3, bytes: 3000 }));
        let report = copy(sources, &at.join("to"), options, &last).unwrap();
        assert_eq!((report.files, report.error_count), (3, 0), "{:?}", report.errors);
        assert_eq!(Some(last.0.into_inner().unwrap().settled), total);
    }
}
