//! Replays the inputs of `fuzz/seeds`: each target once with every input that fuzzing has found worth keeping.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::RwLock,
};

use thalweg_fuzzing::TARGETS;

fn seeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// Held for writing by the target that counts the descriptors of the process, and for reading by every other test.
static ALONE: RwLock<()> = RwLock::new(());

fn replay(name: &str) {
    let is_alone = name == "bulk";
    let _writer = is_alone.then(|| ALONE.write());
    let _reader = (!is_alone).then(|| ALONE.read());
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let inputs = fs::read_dir(seeds().join(name)).expect("seeds");
    let mut paths: Vec<PathBuf> = inputs.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        // The test harness shows this only if the test fails.
        eprintln!("{}", path.display());
        (target.run)(&fs::read(&path).expect("an input"));
    }
}

/// Declares one test per target.
macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replays! {
    blocks bulk chunked client digest_list exclude filter_files fleet frames handed journal manifest netrc peer profile proxy
    remote_name request response ring server stream sync_state tree_list url
}

/// Targets that parse files of the user's own studies. They call the lab directly, so this crate has no function for
/// them.
const OWN_FILES: [&str; 2] = ["study", "study_result"];

#[test]
fn every_target_has_a_test_a_program_and_seeds() {
    let _reader = ALONE.read();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, REPLAYED);
    let listed = |folder: PathBuf| {
        let entries = fs::read_dir(folder).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").path());
        let mut names: Vec<String> = names
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
            .collect();
        names.retain(|name| !OWN_FILES.contains(&&**name));
        names.sort();
        names
    };
    assert_eq!(listed(seeds()), names);
    assert_eq!(listed(seeds().join("../targets")), names);
}

/// Seeds are published with the sources, so they must stay small.
#[test]
fn seeds_are_small_in_all() {
    let _reader = ALONE.read();
    let size = |path: PathBuf| fs::metadata(path).expect("a file").len();
    let folders =
        fs::read_dir(seeds()).expect("seeds").map(|entry| entry.expect("an entry").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).expect("seeds"));
    let bytes: u64 = files.map(|entry| size(entry.expect("a file").path())).sum();
    assert!(bytes < 2 << 20, "{bytes} bytes of seeds");
}
