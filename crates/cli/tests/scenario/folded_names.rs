//! Destinations that ignore the case of names, as FAT and SMB do. Bug reports of rclone and Syncthing describe files
//! that were deleted in this case.

use std::{fs, path::Path};

use crate::support::{Ran, Scratch, fuse::shared::SharedMount, names, run, shell, thalweg};

fn does(place: &Path, command: &[&str], to: &Path) -> Ran {
    run(thalweg().args(command).arg("s").arg(to).current_dir(place))
}

#[test]
fn a_sync_deletes_no_copy_whose_name_differs_in_case() {
    let test = "a_sync_deletes_no_copy_whose_name_differs_in_case";
    let scratch = Scratch::new();
    let below = scratch.folder("below");
    let Some(mount) = SharedMount::folding(test, &below) else { return };
    let setup = "mkdir -p s/NuGet below/d/nuget; echo 1 >s/README; echo 2 >s/NuGet/File; \
                 cp -p s/README below/d/readme; cp -p s/NuGet/File below/d/nuget/file; \
                 touch below/d/extra below/d/nuget/extra";
    shell(scratch.path(), setup).expect(0);
    let to = mount.folder().join("d");
    for _ in 0..2 {
        does(scratch.path(), &["sync", "--delete"], &to).expect(0);
        let mut found = names(&to);
        found.retain(|name| name != ".thalweg-sync");
        let folded: Vec<String> = found.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(folded, ["nuget", "readme"]);
        assert_eq!(fs::read(to.join("README")).unwrap(), b"1\n");
        assert_eq!(fs::read(to.join("NuGet/File")).unwrap(), b"2\n");
        assert_eq!(names(&to.join("NuGet")).len(), 1);
    }
}

#[test]
fn a_move_deletes_no_source_that_shares_its_copy_with_another() {
    let test = "a_move_deletes_no_source_that_shares_its_copy_with_another";
    let scratch = Scratch::new();
    let below = scratch.folder("below");
    let Some(mount) = SharedMount::folding(test, &below) else { return };
    let setup = "mkdir s below/d; echo 1 >s/a; echo 2 >s/A; touch -d @99 s/a s/A";
    shell(scratch.path(), setup).expect(0);
    let to = mount.folder().join("d");
    let ran = does(scratch.path(), &["move"], &to);
    assert_ne!(ran.code(), 0, "{}", ran.said());
    let mut found = vec![fs::read(to.join("a")).unwrap()];
    found.extend(["s/a", "s/A"].iter().filter_map(|name| fs::read(scratch.join(name)).ok()));
    found.sort();
    found.dedup();
    assert_eq!(found, [b"1\n", b"2\n"]);
}
