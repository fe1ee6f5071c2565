//! What is believed after a restart of the machine. A time namespace shows the command a boot that began a moment ago.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use crate::support::{
    Scratch, run,
    run::wrapped,
    skip,
    skip::{has_tools, is_root},
    thalweg,
};

/// The command as a machine runs it that was started a second ago; `None` where there are no time namespaces.
fn after_a_restart(test: &str) -> Option<Command> {
    if !is_root(test) || !has_tools(test, &["unshare"]) {
        return None;
    }
    let up = fs::read_to_string("/proc/uptime").expect("/proc/uptime");
    let up: u64 = up.split('.').next().and_then(|up| up.parse().ok()).expect("seconds");
    let offset = format!("--boottime=-{}", up.saturating_sub(1));
    let probe = Command::new("unshare").args(["--time", &offset, "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip(test, "no time namespaces");
        return None;
    }
    Some(wrapped(&["unshare", "--time", &offset]))
}

/// Takes the data of a file away and leaves its size and its time, as a power cut may.
fn lose_data(path: &Path) {
    let file = File::options().write(true).open(path).expect("a copy");
    let meta = file.metadata().expect("fstat");
    file.write_all_at(&vec![0; meta.len() as usize], 0).expect("zeros");
    file.set_modified(meta.modified().expect("a time")).expect("futimens");
    // The restart of the test must not begin in the same second.
    std::thread::sleep(std::time::Duration::from_millis(2100));
}

#[test]
fn after_a_restart_files_of_earlier_boots_are_compared_with_their_sources() {
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy"));
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("lost"), vec![7; 100_000]).expect("a file");
    fs::write(source.join("kept"), vec![8; 3_000_000]).expect("a file");
    run(thalweg().args(["copy", "-a"]).args([&source, &copy])).expect(0);
    lose_data(&copy.join("lost"));
    let words = ["copy", "-aT", "--resume", "--json"];
    // In the boot in which it was written the page cache is believed: nobody reads it again.
    let account = run(thalweg().args(words).args([&source, &copy])).expect(0).json();
    assert_eq!((&account["files"], &account["skipped"]), (&0.into(), &2.into()), "{account}");
    let Some(mut command) = after_a_restart("files of earlier boots are compared") else { return };
    let account = run(command.args(words).args([&source, &copy])).expect(0).json();
    assert_eq!((&account["files"], &account["skipped"]), (&1.into(), &1.into()), "{account}");
    run(Command::new("diff").arg("-r").args([&source, &copy])).expect(0);
}
