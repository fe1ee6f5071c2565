//! Tests random trees: a walker that shares no code with the copier compares each copy with its source.

use crate::support;

use proptest::prelude::*;
use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};
use support::{
    copy, problems,
    trees::{Node, build, name, node},
    walk,
};
use thalweg_tree::{CopyOptions, Hash, Target, When};

fn options() -> impl Strategy<Value = CopyOptions> {
    let when = || prop_oneof![Just(When::Auto), Just(When::Always), Just(When::Never)];
    let verify = prop_oneof![Just(None), Just(Some(Hash::Blake3)), Just(Some(Hash::Xxh3))];
    (1..4_usize, when(), verify, any::<bool>(), any::<bool>()).prop_map(
        |(jobs, sparse, verify, resume, inplace)| CopyOptions {
            jobs,
            sparse,
            verify,
            resume,
            inplace,
            ..CopyOptions::archive()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_archive_of_any_tree_equals_it(
        children in prop::collection::vec((name(), node()), 0..12),
        options in options(),
    ) {
        let place = support::scratch();
        let (src, to) = (place.path().join("src"), place.path().join("to"));
        let root = Node::Dir { mode: 0o755, time: (1, 1), children };
        build(&src, &root, &mut Vec::new());
        let report = copy(&src, &to, &options);
        prop_assert_eq!(report.error_count, 0, "{}", problems(&report));
        prop_assert!(walk(&src) == walk(&to));
        if options.sparse != When::Never {
            holes_are_kept(&src, &to)?;
        }
        if let Ok(diff) = Command::new("diff").args(["-r", "--no-dereference"]).arg(&src).arg(&to).output() {
            prop_assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        }
        // Copies again over the complete copy.
        let exact = CopyOptions { target: Target::Exact, force: true, ..options };
        let report = copy(&src, &to, &exact);
        prop_assert_eq!(report.error_count, 0, "{}", problems(&report));
        prop_assert!(walk(&src) == walk(&to));
        prop_assert_eq!(support::names(place.path()), ["src", "to"]);
    }
}

fn holes_are_kept(src: &Path, to: &Path) -> Result<(), TestCaseError> {
    for (path, entry) in walk(src) {
        let path = PathBuf::from(OsString::from_vec(path));
        if entry.kind == 'f' && entry.contents.len() > 1 << 20 {
            let blocks = |root: &Path| fs::metadata(root.join(&path)).unwrap().blocks();
            prop_assert!(blocks(to) <= blocks(src) + 8, "{}", path.display());
        }
    }
    Ok(())
}
