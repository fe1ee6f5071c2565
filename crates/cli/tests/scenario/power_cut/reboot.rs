//! Runs a command as after a reboot: with another boot id, and with a `CLOCK_BOOTTIME` that starts now.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use super::command::with_environment;
use crate::support::run;

/// Options of `unshare` for a process with another boot id and boot time.
const NAMESPACES: [&str; 4] = ["--mount", "--propagation=slave", "--time", "--fork"];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the reason if no process here can be given another boot id and boot time.
pub fn missing() -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args(["--boottime=0", "mount", "--bind", "/proc/version", BOOT_ID]);
    let ran = run(&mut command);
    (ran.code() != 0).then(|| format!("no namespace of mounts and time: {}", ran.stderr.trim()))
}

/// Returns the seconds since boot (CLOCK_BOOTTIME).
pub fn uptime() -> u64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).expect("seconds")
}

/// Waits until a boot that `after_reboot` simulates is later than this moment. The simulated clock has an offset in
/// whole seconds, so the simulated boot is at the last full second.
pub fn wait_for_reboot_after(moment: u64) {
    while uptime() <= moment {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Wraps a command. The file `boot_id` replaces the kernel's boot id.
pub fn after_reboot(command: &Command, boot_id: &Path) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(NAMESPACES).args([
        "--kill-child",
        &format!("--boottime=-{}", uptime()),
        "sh",
        "-c",
    ]);
    wrapped.arg(format!("mount --bind \"$0\" {BOOT_ID} && exec \"$@\"")).arg(boot_id);
    wrapped.arg(command.get_program());
    with_environment(wrapped, command, command.get_args())
}
