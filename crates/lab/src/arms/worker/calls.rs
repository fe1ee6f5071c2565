//! System calls that a program does not count itself, from the kernel's counts of reads and writes: `syscr` and
//! `syscw` in /proc/PID/io (proc_pid_io(5)). Any form of `read` or `write` counts as one; `sendfile` and
//! `copy_file_range` count as one of each. `send`, `recv`, `splice`, `vmsplice`, `tee`, io_uring and reading from
//! another process do not count (Linux 6.18). When a process waits for an exited child, the kernel adds the child's
//! counts to those of the process.

use std::{
    fs::{read_dir, read_to_string},
    io::ErrorKind,
};

/// The processes of a program and its helpers: the members of one process group.
#[derive(Debug)]
pub struct Calls {
    group: u32,
    members: Vec<u32>,
    /// The id of the machine's newest process when the members were listed.
    newest: Option<String>,
    /// The number of calls for a request that does nothing, and for its answer.
    order: u64,
}

impl Calls {
    /// Creates the counter for a process group. `order` sends a request that does nothing; its calls are subtracted
    /// from later differences. If the kernel counts no call for this request, counting does not work. The inner error
    /// is the reason why calls are not counted.
    pub fn find<E>(
        group: u32,
        order: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<Self, String>, E> {
        let mut calls = Self { group, members: Vec::new(), newest: None, order: 0 };
        let before = calls.now();
        order()?;
        let after = calls.now();
        Ok(before.and_then(|before| match after?.checked_sub(before) {
            Some(order) if order > 0 => Ok(Self { order, ..calls }),
            _ => {
                Err("the kernel's counts of the worker's reads and writes do not change".to_owned())
            }
        }))
    }

    /// Returns the calls of all processes of the group until now.
    pub fn now(&mut self) -> Result<u64, String> {
        let newest = newest_process();
        if newest.is_none() || newest != self.newest {
            self.members = members(self.group);
            self.newest = newest;
        }
        let mut sum = 0_u64;
        for member in &self.members {
            sum = sum.saturating_add(of_process(&member.to_string())?);
        }
        if self.members.is_empty() {
            Err("the processes of the worker are not in /proc".to_owned())
        } else {
            Ok(sum)
        }
    }

    /// Returns the calls since `before`, without those of the request itself. `None` if a helper exited and its count
    /// was lost.
    pub fn since(&mut self, before: u64) -> Option<u64> {
        Some(self.now().ok()?.checked_sub(before)?.saturating_sub(self.order))
    }
}

/// Returns the reads and writes of a process, including exited threads and children that it has waited for.
fn of_process(process: &str) -> Result<u64, String> {
    let path = format!("/proc/{process}/io");
    match read_to_string(&path) {
        Ok(text) => {
            counts(&text).ok_or_else(|| "/proc/PID/io of the worker has no counts".to_owned())
        }
        Err(_) if !std::path::Path::new("/proc").join(process).exists() => Ok(0),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err("this kernel has no /proc/PID/io".to_owned())
        }
        Err(e) => Err(format!("cannot read /proc/PID/io of the worker: {e}")),
    }
}

fn counts(io: &str) -> Option<u64> {
    let count = |name: &str| -> Option<u64> {
        io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    Some(count("syscr:")? + count("syscw:")?)
}

/// Returns the id of the newest process, the last word of /proc/loadavg. While it does not change, the members need
/// not be listed again.
fn newest_process() -> Option<String> {
    Some(read_to_string("/proc/loadavg").ok()?.split_whitespace().last()?.to_owned())
}

fn members(group: u32) -> Vec<u32> {
    let all = read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|number| group_of(*number) == Some(group)).collect()
}

fn group_of(process: u32) -> Option<u32> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name before it may contain anything, even parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms::tests::skip;
    use std::{
        io::{Read as _, Write as _},
        os::unix::{net::UnixStream, process::CommandExt},
        process::{Command, Stdio},
    };
    use thalweg_sys::{
        Errno,
        copy::{copy_file_range, sendfile},
        io,
        pipe::{Pipe, SpliceMode, splice},
    };

    /// Returns the reads and writes that one call costs. Only this thread is counted, because other tests run in this
    /// process.
    fn cost(call: impl FnOnce() -> Result<usize, Errno>) -> Option<u64> {
        let now = || {
            let text = read_to_string("/proc/thread-self/io").ok()?;
            counts(&text)
        };
        // Reading the counts costs calls itself. The difference of these two readings is that cost, which is constant.
        let (first, second) = (now()?, now()?);
        let done = call();
        let third = now()?;
        done.ok()?;
        (third - second).checked_sub(second - first)
    }

    #[test]
    fn reads_and_writes_are_counted_and_what_moves_bytes_otherwise_is_not() {
        let null = std::fs::File::create("/dev/null").unwrap();
        if cost(|| io::write(&null, b"x")) != Some(1) {
            return skip("calls", "the kernel does not count reads and writes");
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let other = tempfile::tempfile().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let pipe = Pipe::new(0).unwrap();
        let mode = SpliceMode::Block;
        let mut byte = [0];
        assert_eq!(cost(|| io::pread(&file, &mut byte, 0)), Some(1));
        assert_eq!(cost(|| io::pwrite(&other, b"x", 0)), Some(1));
        assert_eq!(cost(|| io::write(&near, b"x")), Some(1));
        assert_eq!(cost(|| io::read(&far, &mut byte)), Some(1));
        assert_eq!(cost(|| thalweg_sys::net::send(&near, b"x")), Some(0));
        assert_eq!(cost(|| sendfile(&near, &file, Some(0), 100)), Some(2));
        let copied = || copy_file_range(&file, Some(0), &other, Some(0), 100);
        assert_eq!(cost(copied), Some(2));
        let spliced = || splice(&file, Some(0), &pipe.writer, None, 100, mode);
        assert_eq!(cost(spliced), Some(0));
    }

    #[test]
    fn helpers_are_counted_with_their_program_and_an_order_is_not() {
        let mut command = Command::new("sh");
        command.args(["-c", "dd bs=1 status=none; true"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut echo = |count: usize| -> Result<(), std::io::Error> {
            to.write_all(&vec![b'x'; count])?;
            from.read_exact(&mut vec![0; count])
        };
        echo(1).unwrap();
        match Calls::find(child.id(), || echo(1)).unwrap() {
            Err(reason) => skip("helpers_are_counted_with_their_program", &reason),
            Ok(mut calls) => {
                let before = calls.now().unwrap();
                echo(1001).unwrap();
                // One read and one write per byte. The last write may not be counted yet, and the calls of a request
                // are subtracted.
                let since = calls.since(before).unwrap();
                assert!((1990..=2010).contains(&since), "{since} {calls:?}");
            }
        }
        drop(to);
        child.wait().unwrap();
    }

    #[test]
    fn a_count_that_stands_still_or_is_not_there_says_why() {
        let group = rustix::process::getpgrp().as_raw_nonzero().get() as u32;
        assert!(members(group).contains(&std::process::id()));
        // No process has this ID.
        let none = Calls::find(u32::MAX, || Ok::<(), ()>(())).unwrap().unwrap_err();
        assert!(none.contains("not in /proc"), "{none}");
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        // A sleeping process reads nothing, so its counts do not change. At first it may still be starting, so the test
        // retries.
        let still = |_: &u32| Calls::find(child.id(), || Ok::<(), ()>(())).unwrap().err();
        let still = (0..100_000).find_map(|n| still(&n)).unwrap();
        assert!(still.contains("do not change") || still.contains("io"), "{still}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(counts("rchar: 1\nsyscr: 2\nsyscw: 3\n"), Some(5));
        assert_eq!(counts("rchar: 1\nsyscr: 2\n"), None);
    }
}
