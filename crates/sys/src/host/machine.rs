//! Properties of the machine, and limits of this process on it.

use rustix::process::{Resource, getrlimit};
use std::{
    fs::{File, read_to_string},
    io::Read,
    sync::OnceLock,
};

/// Returns the kernel's release (uname(2)), as in "6.18.0-1-amd64".
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns the processor's name, and on x86 also family, model and stepping. These distinguish generations with the
/// same name; for example, several report "AMD EPYC" to their guests. If the kernel has no name (Arm), returns the
/// implementer and part numbers.
pub fn cpu_model() -> Option<String> {
    model_in(first_processor()?)
}

/// Returns the revision of the processor's microcode, as in "0x1000065". A hypervisor may invent it.
pub fn microcode() -> Option<String> {
    value_in(first_processor()?, "microcode")
}

/// Returns the first page of /proc/cpuinfo, which describes the first processor. The kernel generates one entry per
/// processor while the file is read. Reading all entries would take most of a small command's start-up time.
fn first_processor() -> Option<&'static str> {
    static HEAD: OnceLock<Option<String>> = OnceLock::new();
    let head = HEAD.get_or_init(|| {
        let mut page = [0; 4096];
        let got = File::open("/proc/cpuinfo").ok()?.read(&mut page).ok()?;
        Some(String::from_utf8_lossy(&page[..got]).into_owned())
    });
    head.as_deref()
}

fn model_in(cpuinfo: &str) -> Option<String> {
    let field = |name| value_in(cpuinfo, name);
    let Some(name) = ["model name", "cpu model", "cpu"].into_iter().find_map(field) else {
        let (maker, part) = (field("CPU implementer")?, field("CPU part")?);
        return Some(format!("implementer {maker} part {part}"));
    };
    let generation = [("family", "cpu family"), ("model", "model"), ("stepping", "stepping")];
    let told = generation.map(|(word, key)| Some(format!("{word} {}", field(key)?)));
    let told: Vec<String> = told.into_iter().flatten().collect();
    Some(if told.is_empty() { name } else { format!("{name}, {}", told.join(" ")) })
}

/// Returns the number of logical processors that are online, including those on which this process may not run.
pub fn cores_online() -> Option<u64> {
    count_in(read_to_string("/sys/devices/system/cpu/online").ok()?.trim())
}

/// Counts the elements of a list like "0-3,8".
fn count_in(list: &str) -> Option<u64> {
    list.split(',').try_fold(0_u64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The status of one thread (proc_pid_status(5)), read once for all queries.
#[derive(Clone, Debug, Default)]
pub struct ThreadStatus(String);

impl ThreadStatus {
    /// Reads the status of the calling thread. If /proc is not available, all queries return `None`.
    pub fn now() -> Self {
        // The file reports no size. The standard library would begin with 32 bytes and double the buffer repeatedly.
        let mut text = String::with_capacity(4096);
        let read = File::open("/proc/thread-self/status")
            .and_then(|file| file.take(u64::MAX).read_to_string(&mut text));
        Self(read.map_or_else(|_| String::new(), |_| text))
    }

    /// Returns the processors the thread may run on, as a list like "0-3,8".
    pub fn affinity(&self) -> Option<String> {
        value_in(&self.0, "Cpus_allowed_list")
    }

    /// Returns the number of processors the thread may run on.
    pub fn allowed(&self) -> Option<u64> {
        count_in(&self.affinity()?)
    }

    /// Returns the effective capabilities, in hexadecimal (capabilities(7)).
    pub fn capabilities(&self) -> Option<String> {
        value_in(&self.0, "CapEff")
    }

    /// Returns the seccomp mode: 0 none, 1 strict, 2 filter.
    pub fn seccomp_mode(&self) -> Option<u64> {
        value_in(&self.0, "Seccomp")?.parse().ok()
    }
}

/// Returns the hypervisor: "KVMKVMKVM", "Microsoft Hv", "xen". `None` on bare metal, or if it is hidden.
pub fn hypervisor() -> Option<String> {
    cpuid_vendor().or_else(|| line_of("/sys/hypervisor/type"))
}

/// Returns the signature in CPUID leaf 0x40000000, which exists if leaf 1 sets bit 31 of ecx.
#[cfg(target_arch = "x86_64")]
fn cpuid_vendor() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    // `__cpuid` is safe since about Rust 1.93, but not in the oldest supported release.
    #[allow(unused_unsafe)]
    // SAFETY: every x86_64 has CPUID with leaf 1.
    let present = unsafe { __cpuid(1) }.ecx >> 31 == 1;
    if !present {
        return None;
    }
    #[allow(unused_unsafe)]
    // SAFETY: as above. An unknown leaf only returns meaningless numbers.
    let leaf = unsafe { __cpuid(0x4000_0000) };
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let name = String::from_utf8_lossy(&bytes);
    Some(name.trim_matches(['\0', ' ']).to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_vendor() -> Option<String> {
    None
}

/// Returns the largest pipe that an unprivileged user may request, in bytes (pipe(7)).
pub fn pipe_max_size() -> Option<u64> {
    number_of("/proc/sys/fs/pipe-max-size")
}

/// Returns the number of pipe pages above which a user's new pipes are small (pipe(7)); 0 means no limit.
pub fn pipe_user_pages_soft() -> Option<u64> {
    number_of("/proc/sys/fs/pipe-user-pages-soft")
}

/// Returns the mode of transparent huge pages: "always", "madvise" or "never".
pub fn thp_enabled() -> Option<String> {
    let modes = line_of("/sys/kernel/mm/transparent_hugepage/enabled")?;
    chosen_in(&modes).map(str::to_owned)
}

/// Returns the word in brackets.
fn chosen_in(modes: &str) -> Option<&str> {
    modes.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}

/// Returns the C library of this process, as in "glibc 2.36".
#[cfg(target_env = "gnu")]
pub fn libc_version() -> Option<String> {
    // SAFETY: takes no arguments and returns a string that lives as long as the process.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: as above: the string is terminated and never freed.
    let version = unsafe { std::ffi::CStr::from_ptr(version) };
    Some(format!("glibc {}", version.to_string_lossy()))
}

/// Returns the C library of this process, without a version, which only glibc reports.
#[cfg(not(target_env = "gnu"))]
pub fn libc_version() -> Option<String> {
    cfg!(target_env = "musl").then(|| "musl".to_owned())
}

/// Returns `kernel.io_uring_disabled`: 0 allowed for all users, 1 for one group only, 2 for none. `None` before Linux
/// 6.6.
pub fn io_uring_disabled() -> Option<u64> {
    number_of("/proc/sys/kernel/io_uring_disabled")
}

/// Returns the soft RLIMIT_MEMLOCK in bytes; `None` means no limit.
pub fn memlock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

fn line_of(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    Some(text.trim()).filter(|line| !line.is_empty()).map(str::to_owned)
}

fn number_of(path: &str) -> Option<u64> {
    line_of(path)?.parse().ok()
}

/// Returns the value of the first line "name: value".
fn value_in(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim()).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Returns the number of bytes that this process could allocate without swapping. This is the machine's `MemAvailable`,
/// or less if control groups limit it further.
pub fn memory_available() -> Option<u64> {
    let machine = memory_of_machine();
    machine.into_iter().chain(super::cgroup::memory_left()).min()
}

fn memory_of_machine() -> Option<u64> {
    let told = read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_pairs_is_read_by_name() {
        let text = "Seccomp_filters:\t3\nSeccomp:\t2\nCapEff:\t\n";
        assert_eq!(value_in(text, "Seccomp").as_deref(), Some("2"));
        assert_eq!(value_in(text, "CapEff"), None);
        assert_eq!(value_in("", "Seccomp"), None);
    }

    #[test]
    fn every_kind_of_cpuinfo_has_a_model() {
        let x86 = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n";
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        let generation = "AMD EPYC, family 25 model 17 stepping 1";
        assert_eq!(model_in(x86).as_deref(), Some(generation));
        assert_eq!(model_in("cpu\t\t: POWER9\n").as_deref(), Some("POWER9"));
        assert_eq!(model_in(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(model_in("processor\t: 0\n"), None);
    }

    #[test]
    fn lists_and_choices_are_parsed_or_refused() {
        assert_eq!(count_in("0-3,8,10-11"), Some(7));
        assert_eq!([count_in(""), count_in("3-1"), count_in("0-x")], [None; 3]);
        assert_eq!(chosen_in("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen_in("always"), None);
    }

    #[test]
    fn this_machine_answers_without_panic() {
        assert!(!kernel_release().is_empty());
        let thread = ThreadStatus::now();
        let of_thread = [thread.affinity(), thread.capabilities()];
        // A container may hide /proc. If it is available, the status is this thread's.
        let is_there = std::path::Path::new("/proc/thread-self/status").exists();
        assert!(of_thread.iter().all(|told| told.is_some() == is_there));
        let told = [cpu_model(), thp_enabled(), libc_version()];
        assert!(told.iter().flatten().all(|fact| !fact.is_empty()));
        let numbers =
            [pipe_max_size(), pipe_user_pages_soft(), io_uring_disabled(), thread.seccomp_mode()];
        eprintln!("{told:?} {numbers:?} {:?} {:?}", hypervisor(), memlock_limit());
        assert_ne!(cores_online(), Some(0));
        assert_ne!(memory_available(), Some(0));
        assert_eq!((number_of("/no/such/file"), line_of("/dev/null")), (None, None));
    }
}
