//! This process, and the test binary run once more in another one.

use std::{
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

static ALONE: Mutex<()> = Mutex::new(());

/// Blocks the other tests of this process that call it while the guard lives: for tests of process-wide state. Resets
/// the peak that [`peak_resident`] returns.
pub fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // proc_pid_clear_refs(5): 5 resets the peak. Without it, another test's peak may only hide growth.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    guard
}

/// Runs one test of this binary in a separate process, with a variable that selects its behaviour there.
///
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

/// Returns the kinds of all that this process has open, sorted. Files of `/proc` are left out: the thread that ends with
/// the program opens one for a moment now and then.
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

/// Waits for a lock that all test processes of this build share: for machine-wide state. It is released when the file
/// is dropped.
///
/// # Panics
/// If the lock's file beside this test binary cannot be made.
pub fn lock(name: &str) -> std::fs::File {
    let path = std::env::current_exe().expect("the path of this binary");
    let file = std::fs::File::create(path.with_file_name(format!("{name}.lock"))).expect("a file");
    file.lock().expect("a lock");
    file
}
