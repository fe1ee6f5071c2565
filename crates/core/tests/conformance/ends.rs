//! Real ends of every kind, of any size: a thread feeds what a pipe cannot hold, another drains it.

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

use thalweg_core::{End, Kind, Sink, Source};

/// What stands round the bytes of a transfer and must not change.
pub const GUARD: u8 = 0xa5;
/// How much of it stands behind.
const BEHIND: usize = 5000;

/// Bytes whose neighbours, pages and 64 KiB blocks all differ.
pub fn pattern(len: usize) -> Vec<u8> {
    static LONGEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8;
        (0..=1 << 20).map(byte).collect()
    });
    LONGEST[..len].to_vec()
}

/// Where in a sink file the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At the end of the file, which grows.
    AtTheEnd,
    /// In the midst of other bytes.
    Within,
}

/// A source with its bytes.
pub struct Feed {
    kind: Kind,
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
    at: u64,
    // A stream of the descriptor's own: what was read from it is gone.
    once: bool,
    feeder: Option<JoinHandle<()>>,
}

/// A sink, and whoever empties it.
pub struct Basin {
    kind: Kind,
    memory: Vec<u8>,
    fd: Option<OwnedFd>,
    file: Option<File>,
    at: u64,
    room: usize,
    drainer: Option<JoinHandle<Vec<u8>>>,
}

/// A nameless file in a folder.
pub fn file_in(folder: &Path) -> File {
    tempfile::tempfile_in(folder).unwrap()
}

/// Two connected stream sockets: (reading, writing).
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
    /// A source of this kind that gives `bytes`; a file has `at` other bytes before them.
    pub fn new(kind: Kind, bytes: Vec<u8>, at: u64, folder: &Path, internet: bool) -> Self {
        let mut from = Self { kind, bytes, fd: None, at, once: false, feeder: None };
        match kind {
            Kind::Memory => {}
            Kind::File => {
                let file = file_in(folder);
                file.write_all_at(&vec![GUARD; at as usize], 0).unwrap();
                file.write_all_at(&from.bytes, at).unwrap();
                from.fd = Some(file.into());
            }
            Kind::Pipe | Kind::Socket => {
                let (near, far) = stream(kind, internet);
                let (bytes, mut far) = (from.bytes.clone(), File::from(far));
                // An error: the test has gone, and says so elsewhere.
                from.feeder = Some(std::thread::spawn(move || drop(far.write_all(&bytes))));
                from.fd = Some(near);
            }
            Kind::Device => {
                from.bytes.fill(0);
                from.fd = Some(File::open("/dev/zero").unwrap().into());
            }
            Kind::Null => {
                from.bytes.clear();
                from.fd = Some(File::open("/dev/null").unwrap().into());
            }
        }
        from
    }

    /// The same file opened to append: it has no offsets for us, and gives each byte once.
    pub fn once(mut self) -> Self {
        let fd = self.fd.take().unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut file = OpenOptions::new().read(true).append(true).open(path).unwrap();
        file.seek(SeekFrom::Start(self.at)).unwrap();
        (self.fd, self.once) = (Some(file.into()), true);
        self
    }

    /// What it gives, from the first byte to the last.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As one end of a transfer.
    pub fn source(&self) -> Source<'_> {
        let Some(fd) = &self.fd else { return Source::Memory(&self.bytes) };
        let end = End::of(fd.as_fd()).unwrap();
        assert_eq!(end.kind, self.kind);
        Source::Fd(if end.at.is_some() { end.at(self.at) } else { end })
    }

    /// What a stream still holds; `None` for ends that can be read again.
    pub fn left(mut self) -> Option<Vec<u8>> {
        let feeder = self.feeder.take();
        if feeder.is_none() && !self.once {
            return None;
        }
        let mut left = Vec::new();
        File::from(self.fd?).read_to_end(&mut left).unwrap();
        if let Some(feeder) = feeder {
            feeder.join().unwrap();
        }
        Some(left)
    }
}

impl Basin {
    /// A sink of this kind for up to `room` bytes; a file has `at` other bytes before them.
    pub fn new(
        kind: Kind,
        room: usize,
        (at, place): (u64, Room),
        folder: &Path,
        internet: bool,
    ) -> Self {
        let mut to =
            Self { kind, memory: Vec::new(), fd: None, file: None, at, room, drainer: None };
        match kind {
            Kind::Memory => to.memory = vec![GUARD; room],
            Kind::File => {
                let file = file_in(folder);
                let behind = if place == Room::Within { room + BEHIND } else { 0 };
                file.write_all_at(&vec![GUARD; at as usize + behind], 0).unwrap();
                to.fd = Some(file.try_clone().unwrap().into());
                to.file = Some(file);
            }
            Kind::Pipe | Kind::Socket => {
                let (far, near) = stream(kind, internet);
                to.drainer = Some(std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    File::from(far).read_to_end(&mut bytes).unwrap();
                    bytes
                }));
                to.fd = Some(near);
            }
            // It takes everything, as /dev/null does, and is another device.
            Kind::Device => to.fd = Some(writable("/dev/zero").into()),
            Kind::Null => to.fd = Some(writable("/dev/null").into()),
        }
        to
    }

    /// As one end of a transfer.
    pub fn sink(&mut self) -> Sink<'_> {
        let Some(fd) = &self.fd else { return Sink::Memory(&mut self.memory) };
        let end = End::of(fd.as_fd()).unwrap();
        assert_eq!(end.kind, self.kind);
        Sink::Fd(if end.at.is_some() { end.at(self.at) } else { end })
    }

    /// Checks that the sink holds the first `moved` of `bytes` and nothing else. After a failure
    /// bytes *inside* a file may already be new ones: pieces may end in any order.
    pub fn check(mut self, bytes: &[u8], moved: usize, failed: bool) -> Result<(), String> {
        self.fd = None;
        let bytes = &bytes[..bytes.len().min(self.room)];
        let delivered = match (self.drainer.take(), &self.file) {
            (Some(drainer), _) => drainer.join().unwrap(),
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
