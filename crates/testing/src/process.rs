//! Helpers that inspect this process, or run a test of this binary in a separate process.

use std::{
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

static ALONE: Mutex<()> = Mutex::new(());

/// Returns a lock that only one test of this process holds at a time, for tests of process-wide state. Resets the peak
/// that [`peak_resident`] returns.
pub fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // proc_pid_clear_refs(5): 5 resets the peak. If this fails, a higher peak of an earlier test may hide growth, but
    // cannot make the test fail.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    guard
}

/// Runs one test of this binary in a separate process, with a variable that selects its behaviour there.
///
/// # Panics
/// If the process cannot be started.
pub fn again(test: &str, variable: &str, value: &str) -> Child {
    Command::new(std::env::current_exe().expect("the path of this binary"))
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .stdout(Stdio::null())
        .spawn()
        .expect("this binary can be run")
}

/// Returns the link targets of all open descriptors of this process, without their numbers, sorted. Files of `/proc`
/// are left out, because the thread that watches for the program's end opens one briefly from time to time.
///
/// # Panics
/// Without `/proc`.
pub fn open_files() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("/proc/self/fd");
    let mut open: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| !target.starts_with("/proc"))
        .map(|target| target.to_string_lossy().split(['[', '(']).next().unwrap_or("").to_owned())
        .collect();
    open.sort();
    open
}

/// Returns the largest resident size that this process has had, in bytes.
///
/// # Panics
/// Without `/proc`.
pub fn peak_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}

/// Waits for a lock that all test processes of this build share, for tests of machine-wide state. Dropping the file
/// releases the lock.
///
/// # Panics
/// If the lock file in the directory of this test binary cannot be created.
pub fn lock(name: &str) -> std::fs::File {
    let path = std::env::current_exe().expect("the path of this binary");
    let file = std::fs::File::create(path.with_file_name(format!("{name}.lock"))).expect("a file");
    file.lock().expect("a lock");
    file
}
