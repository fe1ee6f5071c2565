//! Reads the journals of all workers. Their union is the set of completed tasks.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use std::{
    collections::HashMap,
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Instant, SystemTime},
};
use thalweg_core::atomic_file::{create_new, unlink};
use thalweg_sys::{Errno, io};

use super::{
    bits::Bits,
    boot::WorkerBoot,
    fleet_directory,
    line::{JournalLine, LINE},
    plan::Indexed,
    record::{MOST, WorkerName, WorkerRecord},
};
use crate::{
    fs::list::{DIRECTORY, each_entry, listing_buffer},
    identity::{mtime, size},
};

/// Number of lines read at a time.
const BATCH: usize = 1024;
pub(crate) const JOURNAL: &str = "journal";
pub(crate) const REPORT: &str = "report";

/// The known state of the tasks of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Journals {
    plan: u64,
    /// The completed tasks.
    pub done: Bits,
    workers: HashMap<CString, JournalReader>,
    // The current boot of this machine.
    here: WorkerBoot,
    host: String,
    // The current boot of each other machine, as its workers recorded it.
    boots: HashMap<u32, WorkerBoot>,
}

/// Maximum number of boot lines in one journal: a worker writes one each time it starts.
const MOST_BOOTS: u64 = 4096;

/// The read position in a journal, and the totals of the lines read.
#[derive(Clone, Debug)]
struct JournalReader {
    name: WorkerName,
    // The boot during which the following lines were written.
    boot: Option<WorkerBoot>,
    at: u64,
    tasks: u64,
    bytes: u64,
    last: u32,
    // Modification time of the journal, in seconds since 1970.
    grew: f64,
}

impl Journals {
    /// Creates the state for a plan with these tasks. No journal is read yet.
    pub fn new(plan: u64, index: &[Indexed]) -> Self {
        let here = WorkerBoot::of_this(false);
        let (done, host) = (Bits::new(index.len()), WorkerName::of_this(0, None).host);
        let boots = HashMap::from([(here.machine, here)]);
        Self { plan, done, workers: HashMap::new(), here, host, boots }
    }

    /// Returns `true` if every task is done.
    pub fn are_all_done(&self, index: &[Indexed]) -> bool {
        self.done.count() == index.len()
    }

    /// Reads the lines appended since the last call. A task counts as done if it was synced before it was recorded. A
    /// task without a sync counts until the journals show that its machine was restarted.
    pub fn refresh(&mut self, folder: BorrowedFd<'_>, index: &[Indexed]) -> Result<(), Errno> {
        // After a restart of a machine, some of its tasks no longer count. All journals are then read again.
        while self.read_on(folder, index)? {
            self.done = Bits::new(index.len());
            self.workers.clear();
        }
        Ok(())
    }

    /// Reads appended lines. Returns `true` if a line shows that another machine was restarted.
    fn read_on(&mut self, folder: BorrowedFd<'_>, index: &[Indexed]) -> Result<bool, Errno> {
        let mut is_restarted = false;
        for file in files(folder, JOURNAL)? {
            let Some(name) = WorkerName::parse(&file, JOURNAL) else { continue };
            // The file is opened each time, because only an open makes NFS ask the server again (nfs(5),
            // close-to-open).
            let Some(fd) = fleet_directory::open(folder, &file)? else { continue };
            let fresh = || JournalReader {
                name,
                boot: None,
                at: 0,
                tasks: 0,
                bytes: 0,
                last: 0,
                grew: 0.0,
            };
            let reading = self.workers.entry(file).or_insert_with(fresh);
            // A worker writes at most one line per task, its boot lines, and one torn line.
            let most = (index.len() as u64 + 1 + MOST_BOOTS) * LINE as u64;
            let stat = fstat(&fd)?;
            let end = size(&stat).min(most);
            let (seconds, nanoseconds) = mtime(&stat);
            reading.grew = seconds as f64 + f64::from(nanoseconds) / 1e9;
            let mut buffer = vec![0; LINE * BATCH];
            while reading.at + LINE as u64 <= end {
                let whole = ((end - reading.at) / LINE as u64).min(BATCH as u64) as usize * LINE;
                let got = io::pread_full(fd.as_fd(), &mut buffer[..whole], reading.at)?;
                for line in buffer[..got].chunks_exact(LINE) {
                    reading.at += LINE as u64;
                    if let Some(boot) = WorkerBoot::parse(line, self.plan) {
                        reading.boot = Some(boot);
                        is_restarted |= note_boot(&mut self.boots, boot, self.here);
                        continue;
                    }
                    let Some(line) = JournalLine::parse(line, self.plan) else { continue };
                    let n = line.task as usize;
                    if index.get(n).is_none_or(|task| task.hash != line.what) {
                        continue;
                    }
                    let is_kept = match reading.boot {
                        Some(boot) => boot.is_synced || is_present(&self.boots, boot),
                        // A journal of an earlier version has no boots. It counts if it is of another host.
                        None => reading.name.host != self.host,
                    };
                    if is_kept {
                        self.done.add(n);
                    }
                    reading.tasks += 1;
                    reading.bytes = reading.bytes.saturating_add(line.bytes);
                    reading.last = reading.last.max(line.at);
                }
                if got < LINE {
                    break;
                }
            }
        }
        Ok(is_restarted)
    }

    /// Returns the number of other workers that may still be working. They left no report, and they are not known to be
    /// dead.
    pub fn at_work(&self, folder: BorrowedFd<'_>, me: &WorkerName) -> usize {
        self.names_at_work(folder, me).count()
    }

    /// Returns the position of this worker, by name, among the workers of its rank that may be working; `None` if it is
    /// the only one. A scheduler may start one rank twice, or give a rank to a new worker while the old one still runs.
    pub fn place_in_rank(&self, folder: BorrowedFd<'_>, me: &WorkerName) -> Option<u32> {
        let of_rank = || self.names_at_work(folder, me).filter(|name| name.rank == me.rank);
        let before = of_rank().filter(|name| *name < me).count();
        of_rank().next().map(|_| u32::try_from(before).unwrap_or(u32::MAX))
    }

    fn names_at_work<'a>(
        &'a self,
        folder: BorrowedFd<'a>,
        me: &'a WorkerName,
    ) -> impl Iterator<Item = &'a WorkerName> {
        let names = self.workers.values().map(|reading| &reading.name);
        names.filter(move |name| {
            *name != me && report(folder, name).is_none() && !is_dead(folder, name, me)
        })
    }

    /// Returns the records of all workers, including the reports of those that ended.
    pub fn workers(&self, folder: BorrowedFd<'_>) -> Vec<WorkerRecord> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut workers: Vec<WorkerRecord> = (self.workers.values())
            .map(|reading| {
                let known = WorkerRecord {
                    tasks: reading.tasks,
                    bytes: reading.bytes,
                    seconds: f64::from(reading.last) / 1000.0,
                    silent: (now.as_secs_f64() - reading.grew).max(0.0),
                    ..WorkerRecord::unknown(&reading.name)
                };
                match report(folder, &reading.name) {
                    Some(said) => {
                        WorkerRecord { mechanisms: said.mechanisms, ended: true, ..known }
                    }
                    None => known,
                }
            })
            .collect();
        workers.sort_by(|a, b| (a.rank, &a.host, a.pid).cmp(&(b.rank, &b.host, b.pid)));
        workers
    }
}

/// Returns `true` if the machine is known to still run in this boot.
fn is_present(boots: &HashMap<u32, WorkerBoot>, boot: WorkerBoot) -> bool {
    boot.boot != 0 && boots.get(&boot.machine).is_some_and(|present| present.boot == boot.boot)
}

/// Records a boot of another machine. Returns `true` if it replaces an earlier boot as that machine's current one.
/// Boots of this machine are ignored, because its current boot is always known.
fn note_boot(boots: &mut HashMap<u32, WorkerBoot>, boot: WorkerBoot, here: WorkerBoot) -> bool {
    if boot.machine == here.machine {
        return false;
    }
    match boots.get(&boot.machine) {
        Some(present) if present.boot == boot.boot || present.began >= boot.began => false,
        present => {
            let is_restarted = present.is_some();
            boots.insert(boot.machine, boot);
            is_restarted
        }
    }
}

/// Returns `true` if a worker of this machine is dead. For a worker of another machine the answer is always `false`,
/// because its lock may be invisible here.
fn is_dead(folder: BorrowedFd<'_>, name: &WorkerName, me: &WorkerName) -> bool {
    let file = fleet_directory::open(folder, &name.file(JOURNAL)).ok().flatten();
    let lock = |file: &OwnedFd| flock(file, FlockOperation::NonBlockingLockExclusive);
    name.host == me.host && file.is_some_and(|file| lock(&file).is_ok())
}

/// Returns the report that a worker wrote when it ended.
pub(crate) fn report(folder: BorrowedFd<'_>, name: &WorkerName) -> Option<WorkerRecord> {
    let fd = fleet_directory::open(folder, &name.file(REPORT)).ok()??;
    let mut text = vec![0; MOST];
    let len = io::pread_full(fd.as_fd(), &mut text, 0).ok()?;
    serde_json::from_slice(&text[..len]).ok()
}

/// Returns the names of all files with this prefix.
fn files(folder: BorrowedFd<'_>, what: &str) -> Result<Vec<CString>, Errno> {
    let fd = openat(folder, c".", DIRECTORY, Mode::empty())?;
    let mut found = Vec::new();
    each_entry(fd, &mut listing_buffer(), |entry| {
        if entry.file_name().to_bytes().starts_with(what.as_bytes()) {
            found.push(entry.file_name().to_owned());
        }
        true
    })?;
    Ok(found)
}

/// The journal of this worker.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    file: OwnedFd,
    plan: u64,
    began: Instant,
    // Working time before this start, in seconds.
    worked: f64,
}

impl JournalWriter {
    /// Creates the journal. With `before`, the report of an ended worker, continues that worker's journal instead.
    /// The first new record contains the boot id of this machine and makes this worker visible to the others.
    pub fn begin(
        folder: BorrowedFd<'_>,
        name: &WorkerName,
        plan: u64,
        before: Option<&WorkerRecord>,
        is_synced: bool,
    ) -> Result<Self, Errno> {
        let (access, file) = (OFlags::WRONLY | OFlags::APPEND, name.file(JOURNAL));
        let file = match before {
            Some(_) => {
                unlink(folder, &name.file(REPORT))?;
                let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(folder, &file, flags, Mode::empty())?
            }
            None => create_new(folder, &file, access, 0o600)?,
        };
        // Other workers see by the lock that this worker is alive. If the file system has no locks, the finisher waits
        // for this worker for a limited time.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let torn = size(&fstat(&file)?) as usize % LINE;
        if torn != 0 {
            // Readers find lines by their offset, so a torn line is filled up to its full length.
            io::write(&file, &vec![b'\n'; LINE - torn])?;
        }
        append(&file, &WorkerBoot::of_this(is_synced).to_bytes(plan))?;
        let worked = before.map_or(0.0, |before| before.seconds.max(0.0));
        Ok(Self { file, plan, began: Instant::now(), worked })
    }

    /// Returns the working time in seconds.
    pub fn seconds(&self) -> f64 {
        self.worked + self.began.elapsed().as_secs_f64()
    }

    /// Records a completed task with one write: after a kill the line is either complete or torn.
    pub fn note(&self, task: usize, bytes: u64, what: u64) -> Result<(), Errno> {
        // A value out of range saturates.
        let at = (self.seconds() * 1000.0) as u32;
        append(&self.file, &JournalLine { task: task as u32, bytes, what, at }.to_bytes(self.plan))
    }
}

/// Appends a line with one write.
fn append(file: &OwnedFd, line: &[u8; LINE]) -> Result<(), Errno> {
    loop {
        return match io::write(file, line) {
            Ok(LINE) => Ok(()),
            // The file is full. After a partial line, readers could not parse the following lines.
            Ok(_) => Err(Errno::NOSPC),
            Err(Errno::INTR) => continue,
            Err(errno) => Err(errno),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn index(count: u64) -> Vec<Indexed> {
        (0..count).map(|hash| Indexed { offset: 0, len: 0, files: 0, bytes: 0, hash }).collect()
    }

    #[test]
    fn the_union_of_all_journals_counts_and_what_is_torn_or_strange_does_not() {
        let here = tempfile::tempdir().unwrap();
        let folder = fs::File::open(here.path()).unwrap();
        let index = index(10);
        let name = |rank| WorkerName::of_this(rank, None);
        let (one, other) = (name(1), name(2));
        let mine = JournalWriter::begin(folder.as_fd(), &one, 7, None, false).unwrap();
        let theirs = JournalWriter::begin(folder.as_fd(), &other, 7, None, false).unwrap();
        let stale = JournalWriter::begin(folder.as_fd(), &name(3), 6, None, false).unwrap();
        mine.note(1, 100, 1).unwrap();
        theirs.note(1, 5, 1).unwrap();
        theirs.note(9, 6, 9).unwrap();
        // A line of another plan, one with the hash of another task, and one of a task that does not exist.
        stale.note(2, 1, 2).unwrap();
        theirs.note(3, 1, 4).unwrap();
        theirs.note(10, 1, 10).unwrap();
        let path = here.path().join(one.file("journal").to_str().unwrap());
        let torn = JournalLine { task: 5, bytes: 1, what: 5, at: 0 }.to_bytes(7);
        let mut whole = fs::read(&path).unwrap();
        whole.extend_from_slice(&torn[..LINE - 1]);
        fs::write(&path, &whole).unwrap();
        let mut journals = Journals::new(7, &index);
        for _ in 0..2 {
            journals.refresh(folder.as_fd(), &index).unwrap();
            let done: Vec<usize> = (0..10).filter(|n| journals.done.has(*n)).collect();
            assert_eq!(done, [1, 9]);
        }
        assert_eq!(journals.at_work(folder.as_fd(), &one), 2);
        drop(theirs);
        assert_eq!(journals.at_work(folder.as_fd(), &one), 1);
        let workers = journals.workers(folder.as_fd());
        let said: Vec<_> = workers.iter().map(|w| (w.rank, w.tasks, w.bytes, w.ended)).collect();
        assert_eq!(said, [(1, 1, 100, false), (2, 2, 11, false), (3, 0, 0, false)]);
        // With this last byte the torn line is complete.
        whole.push(torn[LINE - 1]);
        fs::write(&path, &whole).unwrap();
        journals.refresh(folder.as_fd(), &index).unwrap();
        assert!(journals.done.has(5));
    }

    #[test]
    fn workers_of_one_rank_see_each_other_until_one_ends() {
        let here = tempfile::tempdir().unwrap();
        let folder = fs::File::open(here.path()).unwrap();
        let index = index(10);
        let names = [5, 6, 7].map(|began| WorkerName::of_this(1, Some(began)));
        let other = WorkerName::of_this(2, Some(1));
        let begin = |name| JournalWriter::begin(folder.as_fd(), name, 7, None, false).unwrap();
        let places = || {
            let mut journals = Journals::new(7, &index);
            journals.refresh(folder.as_fd(), &index).unwrap();
            names.each_ref().map(|name| journals.place_in_rank(folder.as_fd(), name))
        };
        let _other = begin(&other);
        let first = begin(&names[0]);
        assert_eq!(places()[0], None);
        let (second, third) = (begin(&names[1]), begin(&names[2]));
        assert_eq!(places(), [Some(0), Some(1), Some(2)]);
        drop(first);
        assert_eq!(places()[1..], [Some(0), Some(1)]);
        drop(third);
        assert_eq!(places()[1], None);
        drop(second);
    }

    #[test]
    fn what_was_noted_before_a_restart_counts_only_if_it_was_synced() {
        let here = tempfile::tempdir().unwrap();
        let folder = fs::File::open(here.path()).unwrap();
        let index = index(10);
        let own = WorkerBoot::of_this(false);
        let there = WorkerBoot { machine: own.machine ^ 1, boot: 5, began: 100, is_synced: false };
        let write = |file: &str, boots: &[WorkerBoot], first: u32| {
            let tasks = (first..).take(boots.len());
            let lines = boots.iter().zip(tasks).flat_map(|(boot, task)| {
                let line = JournalLine { task, bytes: 1, what: task.into(), at: 0 };
                [boot.to_bytes(7), line.to_bytes(7)].concat()
            });
            fs::write(here.path().join(file), lines.collect::<Vec<_>>()).unwrap();
        };
        let mut journals = Journals::new(7, &index);
        let mut done = || {
            journals.refresh(folder.as_fd(), &index).unwrap();
            (0..10).filter(|n| journals.done.has(*n)).collect::<Vec<_>>()
        };
        // Three boots of this machine: an earlier one, an earlier one with syncs, and the current one.
        let earlier = WorkerBoot { boot: own.boot ^ 1, ..own };
        let synced = WorkerBoot { is_synced: true, ..earlier };
        write("journal.a-1-0-1", &[earlier, synced, own], 0);
        // The first boot of another machine.
        write("journal.b-1-0-1", &[there], 3);
        assert_eq!(done(), [1, 2, 3]);
        // A later line shows that the other machine has been restarted.
        write("journal.c-1-0-1", &[WorkerBoot { boot: 6, began: 200, ..there }], 4);
        assert_eq!(done(), [1, 2, 4]);
    }
}
