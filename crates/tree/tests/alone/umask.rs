//! Tests the modes of copies with several umasks. The test runs alone in its process, because all
//! threads share the umask.

use crate::support;

use rustix::{fs::Mode, process::umask};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};
use support::{copy, large, noise, recursive};
use thalweg_tree::{CopyOptions, Preserve};

#[test]
fn new_files_obey_the_mask_and_kept_modes_do_not() {
    let _alone = thalweg_testing::alone();
    let place = tempfile::tempdir().unwrap();
    let src = place.path().join("src");
    let modes = [0o644, 0o600, 0o777, 0o466, 0o222, 0o070, 0o4755, 0o664];
    fs::create_dir(&src).unwrap();
    for (n, mode) in modes.into_iter().enumerate() {
        let path = src.join(format!("d{n}"));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o500)).unwrap();
        for (name, len) in [("small", 10), ("large", large())] {
            let path = src.join(format!("{name}{n}"));
            fs::write(&path, noise(len, 1)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o400)).unwrap();
        }
    }
    let old = umask(Mode::empty());
    for (n, mask) in [0o022, 0, 0o077, 0o027].into_iter().enumerate() {
        umask(Mode::from_raw_mode(mask));
        let plain = place.path().join(format!("plain{n}"));
        let kept = place.path().join(format!("kept{n}"));
        copy(&src, &plain, &recursive());
        copy(&src, &kept, &CopyOptions { preserve: Preserve::usual(), ..recursive() });
        for entry in fs::read_dir(&src).unwrap() {
            let entry = entry.unwrap();
            let mode = |path| fs::metadata(path).unwrap().mode() & 0o7777;
            let own = mode(entry.path());
            assert_eq!(mode(kept.join(entry.file_name())), own, "{entry:?} {mask:o}");
            assert_eq!(
                mode(plain.join(entry.file_name())),
                own & 0o777 & !mask,
                "{entry:?} {mask:o}"
            );
        }
        let file = place.path().join("file");
        copy(&src.join("small2"), &file, &CopyOptions::default());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o777 & !mask);
        fs::remove_file(file).unwrap();
    }
    umask(old);
}
