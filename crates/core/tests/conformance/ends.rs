//! Real endpoints of every kind and size. A pipe cannot hold all bytes. One thread therefore writes into a source pipe,
//! and another reads from a sink pipe.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream},
    },
    path::Path,
    sync::LazyLock,
    thread::JoinHandle,
};

use rustix::{
    io::ioctl_fionbio, net::sockopt::set_socket_send_buffer_size, pipe::fcntl_setpipe_size,
};
use thalweg_core::{End, Kind, Sink, Source};

/// The value of the bytes around the transferred range, which must not change.
pub const GUARD: u8 = 0xa5;
/// Number of bytes with the value `GUARD` after the range.
const BEHIND: usize = 5000;

/// Returns `len` bytes, at most 1 MiB + 1, in which neighbouring bytes, pages and 64 KiB blocks
/// differ.
pub fn pattern(len: usize) -> Vec<u8> {
    static LONGEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8;
        (0..=1 << 20).map(byte).collect()
    });
    LONGEST[..len].to_vec()
}

/// Position of the bytes in a sink file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At the end of the file, so that it grows.
    AtTheEnd,
    /// Between other bytes.
    Within,
}

/// The properties of pipes and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// `true` for TCP sockets, `false` for unix sockets.
    pub internet: bool,
    /// `true` if they never block, and the test itself reads and writes their other sides. `false` if threads do so.
    pub by_hand: bool,
}

/// The other side of a stream, which the test reads or writes itself. `bytes` contains the bytes still to be written,
/// or those read so far.
pub struct Hand {
    far: Option<File>,
    bytes: Vec<u8>,
    fed: usize,
}

impl Hand {
    fn new(far: OwnedFd, bytes: &[u8]) -> Self {
        ioctl_fionbio(&far, true).unwrap();
        Self { far: Some(far.into()), bytes: bytes.to_vec(), fed: 0 }
    }

    /// Writes up to `most` bytes, and closes the stream after the last one.
    pub fn feed(&mut self, most: usize) {
        let until = self.bytes.len().min(self.fed + most);
        let put =
            self.far.as_ref().and_then(|mut far| far.write(&self.bytes[self.fed..until]).ok());
        self.fed += put.unwrap_or(0);
        if self.fed == self.bytes.len() {
            self.far = None;
        }
    }

    /// Reads up to `most` of the bytes that have arrived.
    pub fn take(&mut self, most: usize) {
        // EAGAIN: no byte has arrived.
        let _ = self.far.as_ref().unwrap().take(most as u64).read_to_end(&mut self.bytes);
    }
}

/// Makes a stream non-blocking, and its buffer as small as the kernel allows. Changes no file.
fn no_waiting(fd: Option<&OwnedFd>, kind: Kind) {
    let Some(fd) = fd.filter(|_| kind != Kind::File) else { return };
    ioctl_fionbio(fd, true).unwrap();
    let _ = fcntl_setpipe_size(fd, 4096);
    let _ = set_socket_send_buffer_size(fd, 4096);
}

/// A source endpoint, and the bytes that it supplies.
pub struct Feed {
    kind: Kind,
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
    at: u64,
    // `true` if each byte can be read only once, because reads use the descriptor's own offset.
    once: bool,
    feeder: Option<JoinHandle<()>>,
    /// The other side, if the test itself reads or writes it. The test removes it from here while it does so.
    pub hand: Option<Hand>,
}

/// A sink endpoint, and the thread or the [`Hand`] that reads its other side.
pub struct Basin {
    kind: Kind,
    memory: Vec<u8>,
    fd: Option<OwnedFd>,
    file: Option<File>,
    at: u64,
    room: usize,
    drainer: Option<JoinHandle<Vec<u8>>>,
    /// The other side, if the test itself reads or writes it. The test removes it from here while it does so.
    pub hand: Option<Hand>,
}

/// Creates a file without a name in a directory.
pub fn file_in(folder: &Path) -> File {
    tempfile::tempfile_in(folder).unwrap()
}

/// Returns two connected stream sockets: first the reading, then the writing one.
fn sockets(internet: bool) -> (OwnedFd, OwnedFd) {
    if !internet {
        let (near, far) = UnixStream::pair().unwrap();
        return (near.into(), far.into());
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near.into(), far.into())
}

fn stream(kind: Kind, internet: bool) -> (OwnedFd, OwnedFd) {
    match kind {
        Kind::Pipe => {
            let (reader, writer) = std::io::pipe().unwrap();
            (reader.into(), writer.into())
        }
        _ => sockets(internet),
    }
}

impl Feed {
    /// Creates a source of this kind that supplies `bytes`. In a file, `at` guard bytes precede
    /// them.
    pub fn new(kind: Kind, bytes: Vec<u8>, at: u64, folder: &Path, streams: Streams) -> Self {
        let mut from = Self { kind, bytes, fd: None, at, once: false, feeder: None, hand: None };
        from.open(folder, streams);
        if streams.by_hand {
            no_waiting(from.fd.as_ref(), kind);
        }
        from
    }

    fn open(&mut self, folder: &Path, streams: Streams) {
        let (kind, at) = (self.kind, self.at);
        match kind {
            Kind::Memory => {}
            Kind::File => {
                let file = file_in(folder);
                file.write_all_at(&vec![GUARD; at as usize], 0).unwrap();
                file.write_all_at(&self.bytes, at).unwrap();
                self.fd = Some(file.into());
            }
            Kind::Pipe | Kind::Socket => {
                let (near, far) = stream(kind, streams.internet);
                if streams.by_hand {
                    self.hand = Some(Hand::new(far, &self.bytes));
                    self.fd = Some(near);
                    return;
                }
                let (bytes, mut far) = (self.bytes.clone(), File::from(far));
                // An error means that the transfer has closed its end. Other checks of the test then fail.
                self.feeder = Some(std::thread::spawn(move || drop(far.write_all(&bytes))));
                self.fd = Some(near);
            }
            Kind::Device => {
                self.bytes.fill(0);
                self.fd = Some(File::open("/dev/zero").unwrap().into());
            }
            Kind::Null => {
                self.bytes.clear();
                self.fd = Some(File::open("/dev/null").unwrap().into());
            }
        }
    }

    /// Reopens the file with `O_APPEND`. thalweg uses no offsets with such a descriptor, so each byte can be read only once.
    pub fn once(mut self) -> Self {
        let fd = self.fd.take().unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut file = OpenOptions::new().read(true).append(true).open(path).unwrap();
        file.seek(SeekFrom::Start(self.at)).unwrap();
        (self.fd, self.once) = (Some(file.into()), true);
        self
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn source(&self) -> Source<'_> {
        let Some(fd) = &self.fd else { return Source::Memory(&self.bytes) };
        let end = End::of(fd.as_fd()).unwrap();
        assert_eq!(end.kind, self.kind);
        Source::Fd(if end.at.is_some() { end.at(self.at) } else { end })
    }

    /// Returns the bytes that are left in a stream. `None` for a source that can be read again.
    pub fn left(mut self) -> Option<Vec<u8>> {
        let (feeder, hand) = (self.feeder.take(), self.hand.take());
        if feeder.is_none() && hand.is_none() && !self.once {
            return None;
        }
        let unfed = hand.map_or(Vec::new(), |hand| hand.bytes[hand.fed..].to_vec());
        let mut left = Vec::new();
        File::from(self.fd?).read_to_end(&mut left).unwrap();
        if let Some(feeder) = feeder {
            feeder.join().unwrap();
        }
        left.extend(unfed);
        Some(left)
    }
}

impl Basin {
    /// Creates a sink of this kind for up to `room` bytes. In a file, `at` guard bytes precede
    /// them.
    pub fn new(
        kind: Kind,
        room: usize,
        (at, place): (u64, Room),
        folder: &Path,
        streams: Streams,
    ) -> Self {
        let (memory, hand) = (Vec::new(), None);
        let mut to = Self { kind, memory, fd: None, file: None, at, room, drainer: None, hand };
        to.open(place, folder, streams);
        if streams.by_hand {
            no_waiting(to.fd.as_ref(), kind);
        }
        to
    }

    fn open(&mut self, place: Room, folder: &Path, streams: Streams) {
        let (kind, at, room) = (self.kind, self.at, self.room);
        match kind {
            Kind::Memory => self.memory = vec![GUARD; room],
            Kind::File => {
                let file = file_in(folder);
                let behind = if place == Room::Within { room + BEHIND } else { 0 };
                file.write_all_at(&vec![GUARD; at as usize + behind], 0).unwrap();
                self.fd = Some(file.try_clone().unwrap().into());
                self.file = Some(file);
            }
            Kind::Pipe | Kind::Socket => {
                let (far, near) = stream(kind, streams.internet);
                if streams.by_hand {
                    self.hand = Some(Hand::new(far, &[]));
                    self.fd = Some(near);
                    return;
                }
                self.drainer = Some(std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    File::from(far).read_to_end(&mut bytes).unwrap();
                    bytes
                }));
                self.fd = Some(near);
            }
            // `/dev/zero` accepts all bytes like `/dev/null`, but is of the kind `Device`.
            Kind::Device => self.fd = Some(writable("/dev/zero").into()),
            Kind::Null => self.fd = Some(writable("/dev/null").into()),
        }
    }

    pub fn sink(&mut self) -> Sink<'_> {
        let Some(fd) = &self.fd else { return Sink::Memory(&mut self.memory) };
        let end = End::of(fd.as_fd()).unwrap();
        assert_eq!(end.kind, self.kind);
        Sink::Fd(if end.at.is_some() { end.at(self.at) } else { end })
    }

    /// Checks that the sink contains the first `moved` of `bytes` and nothing else. After a failure, a file may also
    /// contain later bytes of the source, because pieces may end in any order.
    pub fn check(mut self, bytes: &[u8], moved: usize, failed: bool) -> Result<(), String> {
        self.fd = None;
        let bytes = &bytes[..bytes.len().min(self.room)];
        let delivered = match (self.drainer.take(), &self.file) {
            (Some(drainer), _) => drainer.join().unwrap(),
            (None, None) if self.hand.is_some() => {
                let mut hand = self.hand.take().unwrap();
                hand.take(usize::MAX);
                hand.bytes
            }
            (None, Some(file)) => return self.check_file(file, bytes, moved, failed),
            (None, None) if self.kind == Kind::Memory => {
                let behind = &self.memory[moved..];
                same(behind, &vec![GUARD; behind.len()]).map_err(|e| format!("behind: {e}"))?;
                self.memory.truncate(moved);
                self.memory
            }
            (None, None) => return Ok(()),
        };
        if delivered.len() != moved {
            return Err(format!("{} bytes arrived, {moved} were reported", delivered.len()));
        }
        same(&delivered, &bytes[..moved])
    }

    /// Checks that a socket delivered at least `moved` of `bytes`, in order. A cancelled MSG_ZEROCOPY transfer reports
    /// only the bytes that the peer had acknowledged. Bytes that were in flight may still arrive.
    pub fn check_acknowledged(mut self, bytes: &[u8], moved: usize) -> Result<(), String> {
        self.fd = None;
        let Some(drainer) = self.drainer.take() else {
            return self.check(bytes, moved, true);
        };
        let delivered = drainer.join().unwrap();
        if delivered.len() < moved {
            return Err(format!("{} bytes arrived, {moved} were reported", delivered.len()));
        }
        same(&delivered, &bytes[..delivered.len()])
    }

    fn check_file(
        &self,
        file: &File,
        bytes: &[u8],
        moved: usize,
        failed: bool,
    ) -> Result<(), String> {
        let at = self.at as usize;
        let mut whole = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut whole, 0).unwrap();
        let at_the_end = whole.len() < at + self.room + BEHIND;
        if at_the_end && whole.len() != at + moved {
            return Err(format!("the file ends at {}, not at {at} + {moved}", whole.len()));
        }
        same(&whole[..at], &vec![GUARD; at]).map_err(|e| format!("before the bytes: {e}"))?;
        same(&whole[at..at + moved], &bytes[..moved])?;
        let behind = &whole[at + moved..];
        if behind == vec![GUARD; behind.len()] {
            return Ok(());
        }
        let alien = behind.iter().enumerate().find(|(n, byte)| {
            let new = failed && bytes.get(moved + n) == Some(byte);
            **byte != GUARD && !new
        });
        alien.map_or(Ok(()), |(n, _)| Err(format!("a byte {n} behind the last was written")))
    }
}

fn writable(path: &str) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn same(got: &[u8], want: &[u8]) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(a, b)| a != b);
    Err(format!("bytes differ at {at:?}, {} and {} long", got.len(), want.len()))
}
