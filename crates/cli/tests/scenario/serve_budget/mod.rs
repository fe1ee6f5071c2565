//! `thalweg serve` under attack by hostile clients: checks its memory, and the response times of a well-behaved client.

mod behaved;
mod group;
mod hostile;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Scratch, Served, skip};
use behaved::Behaved;
use group::MemoryGroup;
use hostile::{Hostile, KINDS};
use thalweg_testing::from_env;

/// The budget of resident memory of the server. Its cgroup has a limit of twice as much.
const RESIDENT: u64 = 128 << 20;
const SMALL: [u8; 1024] = [b's'; 1024];

/// Makes a directory with many names, a small file, and files that take long to hash.
fn tree(root: &Path, names: u64) {
    fs::create_dir(root.join("many")).unwrap();
    for name in 0..names {
        File::create(root.join(format!("many/file-number-{name:08}"))).unwrap();
    }
    fs::write(root.join("small"), SMALL).unwrap();
    fs::create_dir(root.join("few")).unwrap();
    for name in 0..20 {
        fs::write(root.join(format!("few/{name}")), "text").unwrap();
    }
    for name in 0..8 {
        File::create(root.join(format!("large{name}"))).unwrap().set_len(4 << 30).unwrap();
    }
}

/// Raises the limit of open files for the clients of the test, and returns it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If this fails, the limit is unchanged.
    let _ = setrlimit(Resource::Nofile, raised);
    limit.maximum.unwrap_or(u64::MAX)
}

fn peak(server: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn hostile_clients_cost_bounded_memory_and_no_request_of_others_fails() {
    let test = "hostile_clients_cost_bounded_memory";
    let names = from_env("THALWEG_BUDGET_NAMES", 20_000);
    let count = from_env("THALWEG_BUDGET_CLIENTS", 60);
    let time = Duration::from_secs(from_env("THALWEG_BUDGET_SECONDS", 4));
    let room = raise_open_files();
    if room < count + 1000 {
        return skip(test, &format!("{count} clients, but the limit of open files is {room}"));
    }
    let scratch = Scratch::within(Path::new("/dev/shm"));
    tree(scratch.path(), names);
    let group = MemoryGroup::new(2 * RESIDENT);
    if group.is_none() {
        skip(
            test,
            "no memory group can be made here: without one, resident memory is looked at all the same",
        );
    }
    let words = ["--threads", "2", "--hash", "--log", "none", "--metrics"];
    let server = Served::with(scratch.path(), &words);
    if let Some(group) = &group {
        group.add(server.id());
    }
    let at: SocketAddr = server.url["http://".len()..].trim_end_matches('/').parse().unwrap();
    let is_over = AtomicBool::new(false);
    let (report, attempts) = thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|number| {
                let hostile = Hostile::new(number, at, &is_over);
                let thread = thread::Builder::new().stack_size(128 << 10);
                thread.spawn_scoped(scope, move || hostile.run()).unwrap()
            })
            .collect();
        // Lets the first clients connect.
        thread::sleep(Duration::from_secs(1));
        let mut behaved = Behaved::new(at);
        let began = Instant::now();
        while began.elapsed() < time {
            behaved.round();
        }
        is_over.store(true, Ordering::Relaxed);
        let attempts: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        (behaved.report(), attempts)
    });
    let resident = peak(&server);
    let in_group = group.as_ref().map_or(0, MemoryGroup::peak);
    println!(
        "{count} hostile clients of {} kinds, {attempts} connections, {names} names: resident memory {} MiB at most, \
         that of the group {} MiB; {report}",
        KINDS.len(),
        resident >> 20,
        in_group >> 20,
    );
    let page = behaved::get(at, "/-/metrics");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        println!("  {line}");
    }
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    assert!(resident < RESIDENT, "{} MiB", resident >> 20);
    if let Some(bound) = std::env::var("THALWEG_BUDGET_P99_MS").ok().and_then(|n| n.parse().ok()) {
        assert!(report.percentile(99) < Duration::from_millis(bound), "{report}");
    }
}
