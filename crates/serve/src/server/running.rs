//! A running server, and its shutdown.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use thalweg_core::{
    Profile, buffer_pool,
    cadence::{GRACE, RETRY_PAUSE},
};
use thalweg_sys::{fault, signal, usage};

use super::{
    error::ServeError,
    helper_pool::HelperPool,
    listen::{Listening, listen_at},
    log::LogQueue,
    mailbox::wake,
    open::{ServedEntry, ServedRoot},
    options::{ListenAddress, ServeOptions},
    site::ServedSite,
    stream_report::StreamReport,
    tools::Tools,
    unsent::Unsent,
    waiting::WaitingMemory,
    worker::{ENDING, NOW, RUNNING, ServeWorker, WorkerParts},
};
use crate::http::status::HttpStatus;

/// A server that runs until it is stopped.
#[derive(Debug)]
pub struct RunningServer {
    addresses: Vec<ListenAddress>,
    /// Paths of Unix sockets, which are removed at the end.
    names: Vec<PathBuf>,
    stage: Arc<AtomicU8>,
    wakes: Vec<Arc<OwnedFd>>,
    workers: Vec<JoinHandle<()>>,
    log: Option<JoinHandle<()>>,
    site: Arc<ServedSite>,
}

// Descriptors that a connection may need: its socket, its file and a pipe.
const DESCRIPTORS: u64 = 4;
/// Buffers and pipes of finished transfers that a worker keeps for reuse.
const SPARES: buffer_pool::Most = buffer_pool::Most { bytes: 1 << 20, pipes: 4 };

impl RunningServer {
    /// Starts a server.
    pub fn start(mut options: ServeOptions) -> Result<Self, ServeError> {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        let mut threads = options.threads.unwrap_or_else(processors).max(1);
        if !options.streams.is_empty() {
            threads = threads.min(options.streams.len());
        }
        let open_files = usage::raise_open_files().ok().flatten().unwrap_or(u64::MAX);
        let most = usize::try_from(open_files / DESCRIPTORS).unwrap_or(usize::MAX).max(1);
        let most = options.max_connections.unwrap_or(most).max(1);
        let root = ServedRoot::open(&options.root, options.follow)?;
        let site = Arc::new(ServedSite::new(root, &mut options, most));
        let mut streams = std::mem::take(&mut options.streams);
        let listening = if streams.is_empty() {
            listen_at(&options.listen, options.handed, threads)?
        } else {
            Vec::new()
        };
        if let Some(user) = &options.user {
            user.enter().map_err(|errno| ServeError::User { name: user.name(), errno })?;
        }
        let log = options.log.map(LogQueue::start).transpose().map_err(ServeError::Worker)?;
        let (log_queue, log) = log.unzip();
        let names = listening.iter().filter_map(|listening| listening.name.clone()).collect();
        let addresses = listening.iter().map(|listening| listening.address.clone()).collect();
        let stage = Arc::new(AtomicU8::new(RUNNING));
        let (wakes, workers) = (Vec::new(), Vec::new());
        let mut server =
            Self { addresses, names, stage, wakes, workers, log, site: Arc::clone(&site) };
        // Dropped before `server`, which waits for the log thread, and that waits for the end of all senders.
        let log_queue = log_queue.into_iter().next();
        let helpers = Arc::new(HelperPool::default());
        let memory = options.memory / 8 * 3 / threads as u64;
        let unsent = Unsent::find();
        for (number, listeners) in shared_out(listening, threads).into_iter().enumerate() {
            let own = streams.len().div_ceil(threads - number);
            let streams = streams.drain(..own).collect();
            server.start_worker(|stage, wake| WorkerParts {
                listeners,
                streams,
                tools: Tools::new(&site, &helpers, &wake, log_queue.clone()),
                timeouts: options.timeouts,
                most,
                waiting: WaitingMemory::within(memory),
                unsent,
                stage,
                wake,
            })?;
        }
        Ok(server)
    }

    fn start_worker(
        &mut self,
        parts: impl FnOnce(Arc<AtomicU8>, Arc<OwnedFd>) -> WorkerParts + Send,
    ) -> Result<(), ServeError> {
        let failed = |errno| ServeError::Worker(io::Error::from(errno));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(failed)?);
        let parts = parts(Arc::clone(&self.stage), Arc::clone(&wake));
        let (started, answer) = std::sync::mpsc::channel();
        let faults = fault::inherit();
        let work = move || {
            // Signals must be delivered to the thread that handles them.
            let _ = signal::leave_interrupts_to_others();
            buffer_pool::keep(SPARES);
            match ServeWorker::new(parts) {
                Ok(worker) => {
                    let _ = started.send(Ok(()));
                    let _ = worker.run();
                }
                Err(errno) => drop(started.send(Err(errno))),
            }
        };
        let run = move || faults.enter(work);
        let thread = thread::Builder::new().name("serve".to_owned()).spawn(run);
        self.workers.push(thread.map_err(ServeError::Worker)?);
        self.wakes.push(wake);
        match answer.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) => Err(failed(errno)),
            Err(_) => {
                Err(ServeError::Worker(io::Error::other("the thread exited before it was ready")))
            }
        }
    }

    /// Returns the addresses at which clients can connect.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Chooses mechanisms by a new profile from now on. Transfers in progress are not affected.
    pub fn choose_by(&self, profile: Option<Profile>) {
        self.site.choose_by(profile);
        self.wakes.iter().for_each(|fd| wake(fd));
    }

    /// Stops accepting connections and finishes the answers in progress. Waits until all are finished and logged, `grace`
    /// has passed or `is_enough` returns `true`. Returns `true` if all answers were finished.
    pub fn stop(mut self, grace: Duration, mut is_enough: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        self.enter(ENDING);
        let finished = wait(&self.workers, grace, &mut is_enough);
        self.end_workers();
        wait(&self.log, grace.saturating_sub(began.elapsed()), is_enough);
        // The reader of the log may have stopped to read.
        self.log.take_if(|log| !log.is_finished());
        finished
    }

    /// Waits until the last connection of [`ServeOptions::streams`] has ended, and returns what its client reported.
    pub fn join(mut self) -> StreamReport {
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.report()
    }

    /// Ends all connections of [`ServeOptions::streams`], although their peers may keep them open. If the client has
    /// not reported its end, first waits for the last connection, but at most `grace`.
    pub fn end_streams(mut self, grace: Duration) -> StreamReport {
        if self.report().status.is_some() {
            self.enter(ENDING);
        }
        wait(&self.workers, grace, || false);
        self.end_workers();
        self.report()
    }

    /// Returns what the client of [`ServeOptions::streams`] has reported until now.
    pub fn report(&self) -> StreamReport {
        self.site.stream_reports.report()
    }

    fn enter(&self, stage: u8) {
        self.stage.store(stage, Ordering::Relaxed);
        self.wakes.iter().for_each(|fd| wake(fd));
    }

    fn end_workers(&mut self) {
        self.enter(NOW);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }

    fn end(&mut self) {
        self.end_workers();
        wait(&self.log, GRACE, || false);
        for name in self.names.drain(..) {
            let _ = fs::remove_file(name);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the size of the file that a server with these options would send for this path.
pub fn size_of(options: &ServeOptions, path: &Path) -> Result<u64, ServeError> {
    let root = ServedRoot::open(&options.root, options.follow)?;
    let path = root.only.as_deref().map_or(path, Path::new);
    let nothing = |HttpStatus(code, words)| ServeError::Answer {
        path: path.to_owned(),
        answer: format!("{code} {words}"),
    };
    match root.find(path, None) {
        Ok(ServedEntry::File(file)) => Ok(file.version.size),
        Ok(ServedEntry::Directory(_)) => Err(ServeError::Directory(path.to_owned())),
        Err(status) => Err(nothing(status)),
    }
}

/// Waits until all threads have finished, `grace` has passed or `is_enough` returns `true`. Returns `true` if all have
/// finished.
fn wait<'t>(
    threads: impl IntoIterator<Item = &'t JoinHandle<()>> + Copy,
    grace: Duration,
    mut is_enough: impl FnMut() -> bool,
) -> bool {
    let began = Instant::now();
    let is_done = || threads.into_iter().all(JoinHandle::is_finished);
    while !is_done() && began.elapsed() < grace && !is_enough() {
        thread::sleep(RETRY_PAUSE);
    }
    is_done()
}

/// Distributes the listening sockets to the workers.
fn shared_out(listening: Vec<Listening>, workers: usize) -> Vec<Vec<(OwnedFd, bool)>> {
    let mut shares: Vec<Vec<(OwnedFd, bool)>> = (0..workers).map(|_| Vec::new()).collect();
    for Listening { sockets, is_shared, .. } in listening {
        for (share, socket) in shares.iter_mut().zip(sockets) {
            share.push((socket, is_shared));
        }
    }
    shares
}
