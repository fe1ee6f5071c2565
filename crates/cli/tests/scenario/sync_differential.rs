//! `rsync` as the oracle: syncs random trees after random edits with `rsync -aHAX --delete -i` and with `thalweg sync
//! --delete -i`. Compares the trees, and the names that both programs print. A dry run must print the lines of the real
//! run. Each run has the same cases. `THALWEG_CASES=10000` tries more cases, and `THALWEG_SEED` selects others. Each
//! case has its own seed: `THALWEG_SEED=88 THALWEG_CASES=1` repeats case 50.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use thalweg_testing::{Dice, from_env};

use crate::{
    support::{Ran, Scratch, run, shell, skip::has_tools, thalweg},
    sync_trees::{STATE, TreeRecord, edit, lines, record},
};

/// Returns the names in the lines of `-i`, and `true` for deletions. All names of one source file count as its first
/// name.
fn names(ran: &Ran, source: &TreeRecord) -> BTreeSet<(bool, PathBuf)> {
    let groups: BTreeMap<&PathBuf, &PathBuf> =
        source.links.iter().flat_map(|all| all.iter().map(|name| (name, &all[0]))).collect();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| !line.ends_with(STATE)) {
        let (code, name) = line.split_at_checked(12).unwrap_or_else(|| panic!("{line:?}"));
        let name = name.split(" -> ").next().unwrap().split(" => ").next().unwrap();
        let name = PathBuf::from(name.trim_end_matches('/'));
        let name = groups.get(&name).map_or(name.clone(), |first| (*first).clone());
        found.insert((code.starts_with("*deleting"), name));
    }
    // rsync does not print the removal of a directory that a file replaces.
    let others: Vec<PathBuf> =
        found.iter().filter(|(is_gone, _)| !is_gone).map(|(_, name)| name.clone()).collect();
    found.retain(|(is_gone, name)| !is_gone || !others.contains(name));
    found
}

fn sync(words: &[&str], from: &Path, to: &Path) -> Ran {
    run(thalweg().args(["sync", "--delete", "--force"]).args(words).args([from, to])).expect(0)
}

/// Compares one case. Returns `false` if rsync failed, or left the trees different.
fn compare(dice: &mut Dice, place: &Path) -> bool {
    let [source, ours, theirs] = ["source", "ours", "theirs"].map(|name| place.join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&ours).unwrap();
    let changes = 5 + dice.below(40);
    edit(dice, &source, changes);
    if dice.below(5) > 0 {
        sync(&[], &source, &ours);
    }
    let (changes, others) = (dice.below(15), dice.below(15));
    edit(dice, &source, changes);
    edit(dice, &ours, others);
    run(Command::new("cp").arg("-a").args([&ours, &theirs])).expect(0);
    let mut rsync = Command::new("rsync");
    rsync.args(["-aHAXi", "-@-1", "-8", "--delete"]);
    let oracle = run(rsync.arg(source.join("")).arg(&theirs));
    // Both runs use one thread. With several threads, the two runs may first process different names of a file.
    let dry = sync(&["-n", "--jobs=1"], &source, &ours);
    let real = sync(&["-i", "--jobs=1"], &source, &ours);
    assert_eq!(lines(&dry), lines(&real), "the dry run and the real run");
    let wanted = record(&source);
    assert_eq!(record(&ours), wanted);
    // rsync fails if a symbolic link replaces another entry, because it tries to read the ACL of the link. If two files
    // are separate in the source but hard links in the destination, rsync may keep the link, and so change the times of
    // both.
    let has_oracle = oracle.status.code() == Some(0) && record(&theirs) == wanted;
    if has_oracle {
        assert_eq!(names(&real, &wanted), names(&oracle, &wanted));
    }
    assert_eq!(lines(&sync(&["-i"], &source, &ours)), Vec::<String>::new(), "a second run");
    has_oracle
}

#[test]
fn random_edits_are_synced_and_named_as_by_rsync() {
    let test = "random_edits_are_synced_and_named_as_by_rsync";
    if !has_tools(test, &["rsync"]) {
        return;
    }
    let seed = from_env("THALWEG_SEED", 38);
    let cases = from_env("THALWEG_CASES", 50);
    let (next, without_oracle) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= cases {
                break;
            }
            eprintln!("case {case}: THALWEG_SEED={} THALWEG_CASES=1", seed + case);
            let has_oracle = compare(&mut Dice::seeded(seed + case), place(case).path());
            without_oracle.fetch_add(u64::from(!has_oracle), Ordering::Relaxed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let without_oracle = without_oracle.into_inner();
    eprintln!("{test}: rsync failed or differed in {without_oracle} of {cases} cases");
    assert!(without_oracle <= 1 + cases / 100);
}

/// Returns the directory of a case. Most are in memory, because a sync waits for the disk more than for anything else.
fn place(case: u64) -> Scratch {
    let memory = Path::new("/dev/shm");
    if case.is_multiple_of(8) || !memory.is_dir() {
        Scratch::new()
    } else {
        Scratch::within(memory)
    }
}

/// Found by case 3379 of 10,000: the dry run did not record a link in a new directory as the first name.
#[test]
fn a_dry_run_foresees_that_an_existing_link_becomes_a_name_of_a_new_one() {
    let scratch = Scratch::new();
    for (new, old) in [("a", "z"), ("z", "a")] {
        let place = scratch.folder(new);
        let line = format!(
            "mkdir -p source/{{{new},{old}}} ours; ln -s target source/{new}/l; ln -P source/{new}/l source/{old}/l; \
             cp -a source/{old} ours/; touch -hd @1 ours/{old}; touch -d @2 source/*"
        );
        shell(&place, &line).expect(0);
        let (source, ours) = (place.join("source"), place.join("ours"));
        let dry = lines(&sync(&["-n", "--jobs=1"], &source, &ours));
        let real = lines(&sync(&["-i", "--jobs=1"], &source, &ours));
        assert_eq!(dry, real, "the new directory is {new}");
        assert_eq!(record(&ours), record(&source));
    }
}
