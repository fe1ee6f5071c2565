//! Loop devices, and file systems mounted from them. Child processes attach, mount and unmount, so that a hang is
//! confined to a child.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{run, run::GUARD};

/// A loop device, detached when dropped.
pub struct LoopDevice(PathBuf);

/// A mounted file system, unmounted when dropped.
pub struct MountedDisk {
    folder: PathBuf,
    /// `None` if the kernel detaches the loop device at the end of the mount.
    device: Option<LoopDevice>,
}

/// Waits for a lock. Two processes that search for a free device at the same time may find the same one.
pub fn one_search() -> std::fs::File {
    thalweg_testing::lock("losetup")
}

impl LoopDevice {
    /// Attaches any free device to a file. Reads and writes bypass the page cache of the file, if the file supports
    /// this.
    pub fn attach(file: &Path) -> Self {
        Self::attach_at(file, None)
    }

    /// Attaches the device with this number if it is free, otherwise any free device.
    pub fn attach_at(file: &Path, number: Option<u64>) -> Self {
        let _one = one_search();
        if let Some(number) = number {
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let ran = run(Command::new("losetup").args([&path, file]));
            if ran.code() == 0 {
                return Self(path);
            }
        }
        let words = ["--find", "--show", "--direct-io=on"];
        let ran = run(Command::new("losetup").args(words).arg(file)).expect(0);
        Self(PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim()))
    }

    /// Limits the size of a request. The loop driver of Linux 6.18 treats a short write to the file as complete. With
    /// small requests, the file accepts each write completely or not at all.
    pub fn with_requests_of(self, kib: u64) -> Self {
        let name = self.0.file_name().unwrap_or_default();
        let limit = Path::new("/sys/block").join(name).join("queue/max_sectors_kb");
        std::fs::write(limit, kib.to_string()).unwrap();
        self
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the number in the name of the device.
    pub fn number(&self) -> u64 {
        let name = self.0.to_string_lossy();
        name.trim_start_matches("/dev/loop").parse().expect("/dev/loopN")
    }

    /// Detaches the device, and waits until the kernel has released the file. Returns `true` on success.
    fn detach(&self) -> bool {
        let name = self.0.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let began = Instant::now();
        // Another process may attach the device to another file at once.
        let attached = || std::fs::read(&backing).ok();
        let former = attached();
        // A mount namespace of another test may hold the mount for a moment: the kernel then detaches later.
        let _ = Command::new("losetup").arg("-d").arg(&self.0).output();
        let is_attached = || former.is_some() && attached() == former;
        while is_attached() && began.elapsed() < GUARD {
            thread::sleep(Duration::from_millis(2));
        }
        !is_attached()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.detach() {
            eprintln!("{} is still attached", self.0.display());
        }
    }
}

impl MountedDisk {
    /// Mounts an attached device.
    pub fn of_device(device: LoopDevice, folder: &Path, options: &str) -> Result<Self, String> {
        mount(device.path(), folder, options)?;
        Ok(Self { folder: folder.to_owned(), device: Some(device) })
    }

    /// Mounts an image with a loop device that the kernel detaches at the unmount.
    pub fn of_image(image: &Path, folder: &Path, options: &str) -> Result<Self, String> {
        let _one = one_search();
        mount(image, folder, &format!("loop,{options}"))?;
        Ok(Self { folder: folder.to_owned(), device: None })
    }

    /// Mounts a tmpfs.
    pub fn of_memory(folder: &Path, options: &str) -> Self {
        mount_memory(folder, options);
        Self { folder: folder.to_owned(), device: None }
    }

    /// Gives a mounted tmpfs this size.
    pub fn resize_memory(&self, size: &str) {
        let options = format!("remount,size={size}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.folder)).expect(0);
    }

    /// Unmounts, lazily if it stays busy. This may run while a test panics, so it must not panic itself.
    fn unmount(&self) {
        let began = Instant::now();
        loop {
            let ended = Command::new("timeout").args(["60", "umount"]).arg(&self.folder).output();
            let Ok(ended) = ended else { return };
            let reason = String::from_utf8_lossy(&ended.stderr);
            if ended.status.success() || reason.contains("not mounted") {
                return;
            }
            if began.elapsed() > Duration::from_secs(10) {
                eprintln!("unmounted lazily: {}", reason.trim());
                let _ = Command::new("umount").arg("-l").arg(&self.folder).output();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        self.unmount();
        // Detaches the device after the unmount.
        self.device.take();
    }
}

/// Mounts a tmpfs. It is shared, so that an unmount below it also reaches mount namespaces that were created after the
/// mount.
pub fn mount_memory(folder: &Path, options: &str) {
    let words = ["-t", "tmpfs", "--make-shared", "-o", options, "thalweg-tests"];
    run(Command::new("mount").args(words).arg(folder)).expect(0);
}

fn mount(what: &Path, folder: &Path, options: &str) -> Result<(), String> {
    let ran = run(Command::new("mount").args(["-o", options]).args([what, folder]));
    if ran.code() == 0 { Ok(()) } else { Err(format!("mount: {}", ran.stderr.trim())) }
}
