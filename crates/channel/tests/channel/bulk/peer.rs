//! The other process of a test: this test binary, started again with a script in its environment.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_channel::{
    Address, Link, Listener,
    bulk::{Options, Receiver, Sender},
};
use thalweg_core::Tuning;

/// A process that runs longer than this counts as hanging. It is no requirement of speed.
pub const GUARD: Duration = Duration::from_secs(120);

const ROLE: &str = "THALWEG_BULK_PEER";
/// File that the forked child creates if it waited too long.
const TIRED: &str = "tired";
/// File that exists after the other process has forked.
const FORKED: &str = "forked";

/// Script of the other process.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// `true` if the process sends, and `false` if it receives.
    pub sends: bool,
    pub mechanism: Option<String>,
    pub tuning: Tuning,
    /// Length of each buffer, and its offset in the memory allocated for it.
    pub buffers: Vec<(usize, usize)>,
    /// `true` to send loans.
    pub loans: bool,
    /// `true` to repeat the last buffer until the process is killed.
    pub forever: bool,
    /// `true` to stay idle after the last buffer.
    pub lingers: bool,
    /// `true` to fork a child that inherits all descriptors and outlives the process.
    pub forks: bool,
    /// Number of descriptors that the process may open in addition to the existing ones.
    pub files: Option<u64>,
    /// Number of bytes that the process may map in addition to the existing ones.
    pub memory: Option<u64>,
    /// `true` to receive into new memory.
    pub fresh: bool,
    /// Size of additional memory in bytes, which the kernel must free when the process dies.
    pub holds: usize,
    /// Control group that the process joins.
    pub group: Option<PathBuf>,
}

/// Fills a buffer with the test data number `seed`.
pub fn fill(seed: u64, into: &mut [u8]) {
    thalweg_testing::bytes::fill(seed, 0, into);
}

/// Returns the first position at which a buffer differs from test data number `seed`.
pub fn difference(seed: u64, bytes: &[u8]) -> Option<usize> {
    let mut own = vec![0; bytes.len()];
    fill(seed, &mut own);
    if own == bytes { None } else { own.iter().zip(bytes).position(|(a, b)| a != b) }
}

impl Script {
    fn words(&self) -> String {
        let mechanism = self.mechanism.as_deref().unwrap_or("-");
        let knobs: Vec<String> = self.tuning.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let buffers: Vec<String> =
            self.buffers.iter().map(|(len, at)| format!("{len}@{at}")).collect();
        let flags = [
            ("sends", self.sends),
            ("loans", self.loans),
            ("forever", self.forever),
            ("lingers", self.lingers),
            ("forks", self.forks),
            ("fresh", self.fresh),
        ];
        let flags: Vec<&str> = flags.iter().filter(|f| f.1).map(|f| f.0).collect();
        let limit = |limit: Option<u64>| limit.map_or(String::new(), |limit| limit.to_string());
        let group = self.group.as_ref().map_or(String::new(), |path| path.display().to_string());
        let limits = format!("{};{};{group};{}", limit(self.files), limit(self.memory), self.holds);
        format!(
            "{mechanism};{};{};{};{limits}",
            knobs.join(","),
            buffers.join(","),
            flags.join(",")
        )
    }

    fn parse(words: &str) -> Self {
        let parts: Vec<&str> = words.split(';').collect();
        let list = |n: usize| parts[n].split(',').filter(|part| !part.is_empty());
        let number = |text: &str| text.parse::<u64>().unwrap();
        let tuning = list(1).fold(Tuning::default(), |tuning, knob| {
            let (name, value) = knob.split_once('=').unwrap();
            tuning.with(name, number(value))
        });
        let buffers = list(2).map(|buffer| {
            let (len, at) = buffer.split_once('@').unwrap();
            (number(len) as usize, number(at) as usize)
        });
        let has = |flag: &str| list(3).any(|word| word == flag);
        Self {
            sends: has("sends"),
            mechanism: Some(parts[0].to_owned()).filter(|mechanism| mechanism != "-"),
            tuning,
            buffers: buffers.collect(),
            loans: has("loans"),
            forever: has("forever"),
            lingers: has("lingers"),
            forks: has("forks"),
            files: list(4).next().map(number),
            memory: list(5).next().map(number),
            fresh: has("fresh"),
            group: list(6).next().map(PathBuf::from),
            holds: list(7).next().map_or(0, |bytes| number(bytes) as usize),
        }
    }

    /// Returns the options for an end of this script.
    pub fn options(&self) -> Options {
        Options {
            only: self.mechanism.clone(),
            tuning: self.tuning.clone(),
            will_loan: self.loans,
            ..Options::default()
        }
    }

    /// Sets the limits of this process, in addition to what it already uses.
    fn limit(&self) {
        if let Some(group) = &self.group {
            std::fs::write(group.join("cgroup.procs"), "0").unwrap();
        }
        let limit = |resource, current| {
            let maximum = getrlimit(resource).maximum;
            setrlimit(resource, Rlimit { current: Some(current), maximum }).unwrap();
        };
        if let Some(more) = self.files {
            let open = std::fs::read_dir("/proc/self/fd").unwrap();
            let numbers = open.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse::<u64>().ok());
            // The listing of the directory has a descriptor of its own, which is closed again. Do
            // not count it.
            let used = numbers.count() as u64 - 1;
            limit(Resource::Nofile, used + more);
        }
        if let Some(more) = self.memory {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
            limit(Resource::As, pages * rustix::param::page_size() as u64 + more);
        }
    }

    fn play(&self, link: Link, folder: &Path) {
        self.limit();
        if self.sends { self.send(link, folder) } else { self.receive(link, folder) }
    }

    fn send(&self, link: Link, folder: &Path) {
        let mut sender = Sender::over(link, self.options()).expect("a mechanism");
        self.fork(folder);
        for (seed, (len, at)) in self.all_buffers().enumerate() {
            if self.loans {
                let mut loan = sender.alloc(len).expect("a loan");
                fill(seed as u64, &mut loan);
                if let Some(mut again) = sender.send_loan(loan).expect("a transfer") {
                    again.fill(0xee);
                }
                continue;
            }
            let mut memory = vec![0; at + len];
            fill(seed as u64, &mut memory[at..]);
            sender.send_from(&memory[at..]).expect("a transfer");
            // The receiver must not see these later writes.
            memory.fill(0xee);
            std::hint::black_box(&memory);
        }
        self.linger();
    }

    fn linger(&self) {
        if self.lingers {
            loop {
                std::thread::park();
            }
        }
    }

    /// Forks a child that waits until the test removes the directory. After too long a wait, the
    /// child creates a file there.
    fn fork(&self, folder: &Path) {
        use std::{ffi::CString, os::unix::ffi::OsStrExt};
        let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        let (place, tired) = (name(folder), name(&folder.join(TIRED)));
        if !self.forks {
            return;
        }
        // SAFETY: the child makes only system calls.
        if unsafe { libc::fork() } != 0 {
            std::fs::write(folder.join(FORKED), "").unwrap();
            return;
        }
        for _ in 0..GUARD.as_secs() * 20 {
            // SAFETY: the C string was made before the fork.
            if unsafe { libc::access(place.as_ptr(), libc::F_OK) } != 0 {
                // SAFETY: _exit ends the child at once.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: the call takes no pointers.
            unsafe { libc::usleep(50_000) };
        }
        // SAFETY: the C string was made before the fork.
        unsafe { libc::open(tired.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600) };
        // SAFETY: _exit ends the child at once.
        unsafe { libc::_exit(1) };
    }

    fn receive(&self, link: Link, folder: &Path) {
        let mut receiver = Receiver::over(link, &self.options()).expect("a mechanism");
        self.fork(folder);
        for (seed, (len, at)) in self.all_buffers().enumerate() {
            if self.fresh {
                let memory = receiver.recv_new().expect("a buffer");
                assert_eq!(difference(seed as u64, &memory), None, "buffer {seed} of {len}");
                continue;
            }
            let mut memory = vec![0xdd; at + len];
            let got = receiver.recv_into(&mut memory[at..]).expect("a buffer");
            assert_eq!(got, len);
            assert_eq!(difference(seed as u64, &memory[at..]), None, "buffer {seed} of {len}");
        }
        self.linger();
        assert_eq!(receiver.next_len().expect("a goodbye"), None);
    }

    fn all_buffers(&self) -> impl Iterator<Item = (usize, usize)> {
        let last = self.buffers.last().copied().unwrap_or_default();
        let rest = if self.forever { usize::MAX } else { 0 };
        self.buffers.clone().into_iter().chain(std::iter::repeat_n(last, rest))
    }
}

/// The main program of the other process. In an ordinary test run it does nothing.
#[test]
fn the_other_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let (path, script) = role.split_once('|').unwrap();
    let script = Script::parse(script);
    let held = vec![1_u8; script.holds];
    std::hint::black_box(&held);
    let link = Link::connect(&Address::at(path)).expect("a link");
    script.play(link, Path::new(path).parent().unwrap());
}

/// The other process. Dropping this value kills the process.
pub struct Peer {
    pub child: Child,
    folder: tempfile::TempDir,
}

impl Peer {
    /// Starts the other process and waits until it has connected.
    pub fn start(script: &Script) -> (Self, Link) {
        let (folder, path, listener) = listening();
        let child = Self::command(&path, script).spawn().unwrap();
        let link = listener.accept_until(Some(Instant::now() + GUARD)).unwrap();
        (Self { child, folder }, link)
    }

    fn command(path: &Path, script: &Script) -> Command {
        // Name of the test above. This module is part of two test binaries, so the name depends on
        // the binary; it does not contain the crate's name.
        let module = module_path!().split_once("::").unwrap().1;
        let test = format!("{module}::the_other_process");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([&*test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{}|{}", path.display(), script.words()));
        command.stdout(Stdio::null());
        command
    }

    /// Waits until the process has exited with success.
    #[allow(dead_code, reason = "each test binary uses its part")]
    #[track_caller]
    pub fn finish(mut self) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < GUARD, "the other process hangs");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "the other process failed: {status}");
    }

    /// Waits until the process has ended, and returns its status.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub fn end(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits until the other process has forked.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub fn await_fork(&self) {
        let (began, sign) = (Instant::now(), self.folder.path().join(FORKED));
        while !sign.exists() {
            assert!(began.elapsed() < GUARD, "the other process does not fork");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns `true` if the forked child has not given up waiting.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub fn child_waits(&self) -> bool {
        !self.folder.path().join(TIRED).exists()
    }

    /// Kills the process with SIGKILL, and waits until it has ended.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn listening() -> (tempfile::TempDir, PathBuf, Listener) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&Address::at(&path)).unwrap();
    (folder, path, listener)
}
