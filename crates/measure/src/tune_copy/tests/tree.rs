//! Small real runs of tuning the copy of a tree.

use super::*;
use crate::tune_copy::{tree::tune_tree, tree_arms::copy_tree};

fn tree_in(folder: &Path) -> [PathBuf; 1] {
    let tree = folder.join("tree");
    for part in 0..10 {
        let part = tree.join(part.to_string());
        fs::create_dir_all(&part).unwrap();
        (0..20).for_each(|n| fs::write(part.join(n.to_string()), vec![7; n * 100]).unwrap());
    }
    file_in(&tree, 2 << 20);
    [tree]
}

#[test]
fn a_tree_is_measured_by_a_sample_and_its_largest_file() {
    for place in directories() {
        let sources = tree_in(place.path());
        let destination = tempfile::tempdir_in(place.path()).unwrap();
        let job = job(&sources, destination.path(), &|| Ok(()));
        let found = measured(&job);
        assert!(is_clean(destination.path(), 0) && is_clean(place.path(), 2));
        assert_eq!(found.slice.placement, Placement::Sample);
        assert!((1..=201).contains(&found.slice.files), "{:?}", found.slice);
        let names: Vec<&str> = found.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert!(names[0].ends_with("1 thread"), "{names:?}");
        assert!(found.arms.iter().all(|arm| arm.ratio_to_read_write.is_none()));
        assert!(found.cp.is_err() || names.iter().any(|n| n.starts_with("cp -r")), "{names:?}");
        assert!(found.jobs.is_some());
        let large = found.large_file.as_ref().expect("there is a file of 2 MiB");
        assert_eq!((&found.winner, &found.cells), (&large.winner, &large.cells));
        assert!(found.winner.is_some() && !found.cells.is_empty());
    }
}

fn some_file(folder: &Path) -> PathBuf {
    let first = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    if first.is_dir() { some_file(&first) } else { first }
}

type Spoil = fn(&Path);

#[test]
fn a_tree_that_is_copied_wrongly_is_no_result() {
    let place = tempfile::tempdir().unwrap();
    let sources = tree_in(place.path());
    let job = job(&sources, place.path(), &|| Ok(()));
    let faults: [(Spoil, &str); 3] = [
        (|copy| fs::remove_file(some_file(copy)).unwrap(), "No such file"),
        (|copy| fs::write(some_file(copy), "x").unwrap(), " was copied incorrectly"),
        (|copy| fs::write(copy.join("more"), "x").unwrap(), "files of "),
    ];
    for (fault, words) in faults {
        let copy = move |from: &Path, to: &Path, options: &CopyOptions, stop: &StopCheck<'_>| {
            copy_tree(from, to, options, stop)?;
            fault(to);
            Ok(())
        };
        let refusal = tune_tree(&job, &copy).unwrap_err().to_string();
        assert!(refusal.contains(words), "{refusal}");
        assert!(is_clean(place.path(), 1));
    }
}

#[test]
fn stopping_a_tree_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    stops_cleanly(place.path(), &tree_in(place.path()), &[0, 3, 30, 300]);
}

#[test]
fn a_tree_without_files_is_not_measured() {
    let place = tempfile::tempdir().unwrap();
    let sources = [place.path().to_owned()];
    let refusal = tune(&job(&sources, place.path(), &|| Ok(()))).unwrap_err();
    assert!(refusal.to_string().contains("no regular file"), "{refusal}");
}
