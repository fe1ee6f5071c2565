//! Compression of a byte stream below HTTP. A thread for each direction connects the stream to a socket pair.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::{Shutdown, shutdown},
};
use thalweg_sys::{Errno, io, signal};

use crate::plans::KnownEnd;

pub mod frames;

use frames::{CompressionFailure, FrameReader, FrameWriter, LARGEST_CONTENT, PREAMBLE};

/// The threads that compress and decompress a stream. They end when either side closes the stream.
#[derive(Clone, Debug)]
pub struct CompressedStream(Arc<CompressionShared>);

#[derive(Debug, Default)]
struct CompressionShared {
    failure: Mutex<Option<CompressionFailure>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The reason why one direction of the stream ended.
enum PumpEnd {
    Failed(CompressionFailure),
    /// A descriptor is closed or failed. The code for HTTP reports the reason.
    Closed,
}

impl CompressedStream {
    /// Starts the threads, which copy between the descriptors of the peer and `far`, one end of a socket pair. HTTP
    /// uses the other end. If `input` is `None`, `output` is a socket for both directions.
    pub(crate) fn start(
        output: OwnedFd,
        input: Option<OwnedFd>,
        sink: KnownEnd,
        far: OwnedFd,
    ) -> Result<Self, Errno> {
        fcntl_setfl(&far, fcntl_getfl(&far)? | OFlags::NONBLOCK)?;
        let (far, output) = (Arc::new(far), Arc::new(output));
        let input = input.map_or_else(|| Arc::clone(&output), Arc::new);
        let stream = Self(Arc::default());
        let (from, shared) = (Arc::clone(&far), Arc::clone(&stream.0));
        stream.start_thread("compress", move || {
            let how = match send(&from, &output, sink) {
                Ok(()) => Shutdown::Read,
                Err(end) => {
                    shared.note(end);
                    // A server that waits for EPOLLOUT would not notice if only one direction were shut down.
                    Shutdown::Both
                }
            };
            // Ends the input of the peer. A close would not, because the other thread and the peer's parent may hold
            // the socket. The call fails with ENOTSOCK for a pipe.
            let _ = shutdown(&*output, Shutdown::Write);
            let _ = shutdown(&*from, how);
        })?;
        let shared = Arc::clone(&stream.0);
        stream.start_thread("decompress", move || {
            let how = match receive(&input, &far) {
                Ok(()) => Shutdown::Write,
                Err(end) => {
                    shared.note(end);
                    Shutdown::Both
                }
            };
            let _ = shutdown(&*far, how);
        })?;
        Ok(stream)
    }

    /// Returns the reason if the stream ended early.
    pub fn failure(&self) -> Option<CompressionFailure> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until everything was sent. The caller must have closed the stream for HTTP.
    pub fn finish(&self) -> Option<CompressionFailure> {
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            let _ = thread.join();
        }
        self.failure()
    }

    fn start_thread(&self, name: &str, pump: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        let work = move || {
            // Signals must be delivered to the thread that handles them.
            let _ = signal::leave_interrupts_to_others();
            pump();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads().push(thread.map_err(|_| Errno::AGAIN)?);
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.0.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompressionShared {
    fn note(&self, end: PumpEnd) {
        if let PumpEnd::Failed(failure) = end {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        }
    }
}

impl From<CompressionFailure> for PumpEnd {
    fn from(failure: CompressionFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Errno> for PumpEnd {
    fn from(_: Errno) -> Self {
        Self::Closed
    }
}

/// Sends the bytes of HTTP as frames. A frame ends when no more bytes are waiting, so that no request is delayed.
fn send(from: &OwnedFd, wire: &OwnedFd, sink: KnownEnd) -> Result<(), PumpEnd> {
    let no_memory = CompressionFailure::Library("out of memory");
    let mut writer = FrameWriter::new().ok_or(no_memory)?;
    let mut content = vec![0; LARGEST_CONTENT];
    let mut frames = PREAMBLE.to_vec();
    loop {
        let length = gather(from, &mut content)?;
        if length == 0 {
            return Ok(());
        }
        writer.write(&content[..length], &mut frames)?;
        write_all(wire.as_fd(), sink, &frames)?;
        frames.clear();
    }
}

/// Waits for the first byte, and reads all bytes that are waiting, as far as they fit. Returns 0 at the end of the
/// stream.
fn gather(from: &OwnedFd, content: &mut [u8]) -> Result<usize, Errno> {
    let mut length = 0;
    while length < content.len() {
        match io::read(from, &mut content[length..]) {
            // If bytes were read before, the next call finds the end of the stream again.
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::AGAIN) if length > 0 => break,
            Err(Errno::AGAIN) => wait(|| io::wait_readable(from, None))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(length)
}

/// Passes the content of received frames to HTTP. If the stream ends within a frame, HTTP notices the lost connection.
fn receive(wire: &OwnedFd, to: &OwnedFd) -> Result<(), PumpEnd> {
    let no_memory = CompressionFailure::Library("out of memory");
    let mut reader = FrameReader::new().ok_or(no_memory)?;
    let mut bytes = vec![0; LARGEST_CONTENT];
    let sink = KnownEnd::Socket { is_internet: false };
    loop {
        match io::read(wire, &mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => reader.read(&bytes[..count], |content| {
                write_all(to.as_fd(), sink, content).map_err(PumpEnd::from)
            })?,
            Err(Errno::AGAIN) => wait_for_wire(wire, to)?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits for bytes of the peer. Fails if HTTP has closed its stream.
fn wait_for_wire(wire: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut watched = [PollFd::new(wire, PollFlags::IN), PollFd::new(to, PollFlags::empty())];
    wait(|| poll(&mut watched, None).map(|_| true))?;
    if watched[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Err(Errno::PIPE);
    }
    Ok(())
}

fn write_all(to: BorrowedFd<'_>, sink: KnownEnd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match sink.write(to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => wait(|| io::wait_writable(to, None))?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Waits for a descriptor. A signal may end the wait early, so the caller repeats its call and waits again.
fn wait(waits: impl FnOnce() -> Result<bool, Errno>) -> Result<(), Errno> {
    match waits() {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
