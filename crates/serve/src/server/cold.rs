//! Stretches of files that are not in memory: helpers read them in, so that no worker waits for a disk.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::fs::{Advice, fadvise, fstatfs};
use thalweg_sys::{Errno, fault, io};

use super::{mailbox::Mailbox, opened::Opened};
use crate::http::range::Stretch;

/// Helpers at the most: a disk that does not answer keeps as many as may work on it.
const MOST: usize = 32;
/// Helpers of one device, so that one that hangs leaves some to the others.
const PER_DEVICE: usize = 8;
/// What a helper reads at a time.
const PIECE: usize = 128 << 10;
/// How far apart the bytes are by which a long stretch is judged: the kernel reads ahead by as much.
const STRIDE: u64 = 128 << 10;

/// What is known of a device that files lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// It says whether a read would wait.
    Tells,
    /// There is nothing to wait for, or nothing that could be asked: overlayfs reads another file below.
    Direct,
    /// It may take its time and does not say so: FUSE, and what lies on another machine.
    Silent,
}

// statfs(2): file systems without RWF_NOWAIT that a worker reads itself.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;
const PROC: u64 = 0x9fa0;
const SYSFS: u64 = 0x6265_6572;
const DIRECT: &[u64] = &[TMPFS, RAMFS, OVERLAY, PROC, SYSFS];

/// The devices one worker has met: few, so a list.
#[derive(Debug, Default)]
pub struct Disks(Vec<(u64, Disk)>);

/// What came of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes; none at the end of the file.
    Bytes(usize),
    /// The next one is not in memory, or nobody can tell.
    Cold,
}

impl Disks {
    /// Reads what is in memory.
    pub fn read(&mut self, file: &Opened, into: &mut [u8], at: u64) -> Result<Got, Errno> {
        match self.of(file) {
            Disk::Silent => return Ok(Got::Cold),
            Disk::Direct => return io::pread(file, into, at).map(Got::Bytes),
            Disk::Tells => {}
        }
        match io::pread_cached(file, into, at) {
            Ok(count) => Ok(Got::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Got::Cold),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.learn(file);
                self.read(file, into, at)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Whether some of a stretch is not in memory, judged by a byte here and there.
    pub fn is_cold(&mut self, file: &Opened, stretch: Stretch) -> bool {
        let last = stretch.to.saturating_sub(1);
        let mut places = (stretch.from..last).step_by(STRIDE as usize).chain([last]);
        let is_cold = |disks: &mut Self, at| {
            // What cannot be read is for the mechanism to say.
            matches!(disks.read(file, &mut [0], at), Ok(Got::Cold))
        };
        match self.of(file) {
            Disk::Direct => false,
            _ => places.any(|at| is_cold(self, at)),
        }
    }

    fn of(&self, file: &Opened) -> Disk {
        let device = file.version.device();
        let known = self.0.iter().find(|(known, _)| *known == device);
        known.map_or(Disk::Tells, |(_, disk)| *disk)
    }

    fn learn(&mut self, file: &Opened) {
        let kind = fstatfs(file).map(|stat| stat.f_type as u64);
        let is_direct = kind.is_ok_and(|kind| DIRECT.contains(&kind));
        let disk = if is_direct { Disk::Direct } else { Disk::Silent };
        self.0.push((file.version.device(), disk));
    }
}

/// A stretch to be read in, and who waits for it.
pub struct Job {
    pub file: Arc<Opened>,
    pub stretch: Stretch,
    pub token: u64,
    pub mailbox: Arc<Mailbox>,
}

/// Threads that wait for disks in the place of the workers.
#[derive(Default)]
pub struct Helpers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Job, Arc<AtomicBool>)>,
    /// How many work on a device.
    busy: HashMap<u64, usize>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Helpers {
    /// Has a stretch read in; the flag is set when that is done, before the mailbox is told. Where no thread can
    /// be had it is set at once: the worker then waits itself.
    pub fn read_in(&self, job: Job) -> Arc<AtomicBool> {
        let done = Arc::new(AtomicBool::new(false));
        let mut state = self.0.lock();
        state.queue.push_back((job, Arc::clone(&done)));
        if state.idle > 0 {
            self.0.work.notify_one();
        } else if state.threads < MOST && self.start() {
            state.threads += 1;
        } else if state.threads == 0 {
            state.queue.clear();
            done.store(true, Ordering::Release);
        }
        done
    }

    /// One more; nobody waits for its end, which a disk can put off for ever.
    fn start(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let faults = fault::inherit();
        let run = move || faults.enter(|| shared.work());
        thread::Builder::new().name("cold".to_owned()).spawn(run).is_ok()
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut buffer = vec![0; PIECE];
        let mut state = self.lock();
        while !state.is_over {
            let Some((job, done)) = state.next() else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            read_in(&job, &mut buffer);
            done.store(true, Ordering::Release);
            job.mailbox.tell(job.token);
            state = self.lock();
            state.end(job.file.version.device());
            // One that found its device busy may go on.
            self.work.notify_one();
        }
    }
}

impl State {
    /// The first whose device has not all its helpers.
    fn next(&mut self) -> Option<(Job, Arc<AtomicBool>)> {
        let device = |job: &Job| job.file.version.device();
        let is_free =
            |(job, _): &(Job, _)| self.busy.get(&device(job)).is_none_or(|n| *n < PER_DEVICE);
        let next = self.queue.iter().position(is_free)?;
        let job = self.queue.remove(next)?;
        *self.busy.entry(device(&job.0)).or_default() += 1;
        Some(job)
    }

    fn end(&mut self, device: u64) {
        if let Some(count) = self.busy.get_mut(&device) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(&device);
            }
        }
    }
}

/// Reads, so that it is in memory. What goes wrong the worker finds out by itself.
fn read_in(job: &Job, buffer: &mut [u8]) {
    let Job { file, stretch, .. } = job;
    // The disk goes on with what follows while this is sent.
    if let Some(len) = std::num::NonZeroU64::new(stretch.len()) {
        let _ = fadvise(file, stretch.to, Some(len), Advice::WillNeed);
    }
    let mut at = stretch.from;
    while at < stretch.to {
        let most = buffer.len().min((stretch.to - at) as usize);
        match io::pread(file, &mut buffer[..most], at) {
            Ok(0) => return,
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::open::{Follow, Found, Root};
    use rustix::event::{EventfdFlags, eventfd};
    use std::path::Path;

    #[test]
    fn what_was_read_in_is_told_of_once() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), vec![1; 300_000]).unwrap();
        let root = Root::open(place.path(), Follow::None).unwrap();
        let Ok(Found::File(file)) = root.find(Path::new("file"), None) else { panic!() };
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mailbox = Arc::new(Mailbox::new(Arc::clone(&wake)));
        let helpers = Helpers::default();
        let mut waited_for = Vec::new();
        for token in 0..100 {
            let stretch = Stretch { from: token, to: 300_000 };
            let (file, mailbox) = (Arc::clone(&file), Arc::clone(&mailbox));
            waited_for.push(helpers.read_in(Job { file, stretch, token, mailbox }));
        }
        let mut told = Vec::new();
        while told.len() < 100 {
            io::read(&*wake, &mut [0; 8]).unwrap();
            told.extend(mailbox.take());
        }
        told.sort_unstable();
        assert_eq!(told, (0..100).collect::<Vec<u64>>());
        assert!(waited_for.iter().all(|done| done.load(Ordering::Acquire)));
        assert!(helpers.0.lock().threads <= MOST);
        let mut disks = Disks::default();
        assert!(!disks.is_cold(&file, Stretch { from: 0, to: 300_000 }));
    }
}
