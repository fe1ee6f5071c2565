//! Entries in a file on disk, each with its path: the directories of a list, and the entries that have to be changed.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use thalweg_core::atomic_file::{AtomicFile, failed};
use thalweg_sys::io;

use super::{entry::ListedEntry, list::unnamed};
use crate::{
    client::FetchError,
    manifest::{
        DirectoryContents, FieldError, FileTag, ListFields, ManifestKind, Meta, SpecialFile, put,
        put_xattrs, take_xattrs,
    },
};

/// Entries on disk. They do not record whether a file has other names. A record is the length of its payload, the
/// payload, and the length again, so that it can be read in both directions.
pub struct EntryStore {
    file: AtomicFile<OwnedFd, CString>,
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
    written: u64,
}

/// Bits about a stored directory: whether it exists, is skipped, or contains changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredState(u8);

/// An entry and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub entry: ListedEntry,
    pub state: StoredState,
    /// File offset of the record.
    pub at: u64,
}

/// Size of the buffers, in bytes.
const ROOM: usize = 64 << 10;
/// Size of a length field, in bytes.
const LENGTH: usize = 4;

const FILE: u8 = 0;
const DIRECTORY: u8 = 1;
const UNREAD: u8 = 2;
const LINK: u8 = 3;
const SPARSE_FILE: u8 = 4;
const ELSEWHERE: u8 = 5;
const SPECIAL: u8 = 6;

impl StoredState {
    /// The directory exists.
    pub const PRESENT: Self = Self(1);
    /// The directory exists, and its attributes are those of the list.
    pub const SAME: Self = Self(3);
    /// The directory is excluded, or its name is reserved for partial files, so that it is not created.
    pub const SKIPPED: Self = Self(4);
    /// An entry of the directory has to be changed.
    pub const TOUCHED: Self = Self(8);

    /// Returns the state with [`Self::TOUCHED`].
    pub fn touched(self) -> Self {
        Self(self.0 | Self::TOUCHED.0)
    }

    /// Returns `true` if all bits of `other` are set.
    pub fn is(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl EntryStore {
    /// Creates an empty store in this directory.
    pub fn create(directory: BorrowedFd<'_>, name: CString) -> Result<Self, FetchError> {
        Ok(Self { file: unnamed(directory, name)?, waiting: Vec::new(), written: 0 })
    }

    /// Returns the size of all records, in bytes.
    pub fn bytes(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &ListedEntry, state: StoredState) -> Result<(), FetchError> {
        let out = &mut self.waiting;
        let begin = out.len();
        out.extend_from_slice(&[0; LENGTH]);
        out.push(state.0);
        write(entry, out);
        let length = ((out.len() - begin - LENGTH) as u32).to_le_bytes();
        out[begin..begin + LENGTH].copy_from_slice(&length);
        out.extend_from_slice(&length);
        if self.waiting.len() >= ROOM { self.flush() } else { Ok(()) }
    }

    /// Writes the waiting bytes to the file, so that they can be read.
    pub fn flush(&mut self) -> Result<(), FetchError> {
        let mut from = 0;
        while from < self.waiting.len() {
            let wrote = io::pwrite(&self.file.fd, &self.waiting[from..], self.written);
            let wrote = wrote.map_err(failed("pwrite"))?;
            from += wrote;
            self.written += wrote as u64;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Records that an entry of the directory at offset `at` has to be changed.
    pub fn touch(&self, at: u64, state: StoredState) -> Result<(), FetchError> {
        io::pwrite(&self.file.fd, &[state.touched().0], at + LENGTH as u64)
            .map_err(failed("pwrite"))?;
        Ok(())
    }

    /// Returns the written entries, from the first one to the last.
    pub fn entries(&self) -> StoredEntries<'_> {
        StoredEntries { store: self, cursor: StoreCursor::default() }
    }

    /// Returns the written entries, from the last one to the first.
    pub fn backwards(&self) -> StoreBackwards<'_> {
        StoreBackwards {
            fd: self.file.fd.as_fd(),
            start: 0,
            end: self.written,
            buffer: Vec::new(),
            have: false,
        }
    }
}

/// The position from which a reader of the store continues.
#[derive(Debug, Default)]
pub struct StoreCursor {
    /// File offset of the next read.
    at: u64,
    buffer: Vec<u8>,
    used: usize,
    have: usize,
    /// Offset in the buffer of the record that was returned last.
    last: usize,
}

impl StoreCursor {
    /// Returns the next written entry.
    pub fn next(&mut self, store: &EntryStore) -> Result<Option<StoredEntry>, FetchError> {
        loop {
            let bytes = &self.buffer[self.used..self.have];
            let whole =
                bytes.first_chunk().map(|length| 2 * LENGTH + u32::from_le_bytes(*length) as usize);
            if let Some(whole) = whole.filter(|whole| *whole <= bytes.len()) {
                let at = self.at - bytes.len() as u64;
                let found = read(&bytes[LENGTH..whole - LENGTH], at)?;
                (self.last, self.used) = (self.used, self.used + whole);
                return Ok(Some(found));
            }
            let rest = bytes.len();
            self.buffer.copy_within(self.used..self.have, 0);
            (self.used, self.have) = (0, rest);
            self.buffer.resize(ROOM.max(whole.unwrap_or(0)), 0);
            let read = io::pread(&store.file.fd, &mut self.buffer[rest..], self.at);
            let read = read.map_err(failed("pread"))?;
            (self.at, self.have) = (self.at + read as u64, rest + read);
            if read == 0 && self.at < store.written {
                return Err(FetchError::ListChanged);
            }
            if read == 0 {
                return Ok(None);
            }
        }
    }
}

/// Reads a store forwards.
pub struct StoredEntries<'a> {
    store: &'a EntryStore,
    cursor: StoreCursor,
}

impl StoredEntries<'_> {
    /// Returns the next entry.
    pub fn next_entry(&mut self) -> Result<Option<StoredEntry>, FetchError> {
        self.cursor.next(self.store)
    }

    /// Makes [`Self::next_entry`] return the last entry again.
    pub fn unread(&mut self) {
        self.cursor.used = self.cursor.last;
    }
}

/// Reads a store backwards.
pub struct StoreBackwards<'a> {
    fd: BorrowedFd<'a>,
    /// File offset of the buffer.
    start: u64,
    /// File offset of the end of the next record.
    end: u64,
    buffer: Vec<u8>,
    have: bool,
}

impl StoreBackwards<'_> {
    /// Returns the previous entry.
    pub fn next_entry(&mut self) -> Result<Option<StoredEntry>, FetchError> {
        if self.end == 0 {
            return Ok(None);
        }
        let length = self.last(LENGTH)?;
        let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        let whole = 2 * LENGTH + length;
        let at = self.end.checked_sub(whole as u64).ok_or(FetchError::ListChanged)?;
        let found = read(&self.last(whole)?[LENGTH..whole - LENGTH], at)?;
        self.end = at;
        Ok(Some(found))
    }

    /// Returns the last `count` bytes before the end.
    fn last(&mut self, count: usize) -> Result<&[u8], FetchError> {
        if !self.have || self.end - self.start < count as u64 {
            let size = self.end.min(ROOM.max(count) as u64);
            self.start = self.end - size;
            self.buffer.resize(size as usize, 0);
            let read = io::pread(self.fd, &mut self.buffer, self.start).map_err(failed("pread"))?;
            if read != self.buffer.len() || read < count {
                return Err(FetchError::ListChanged);
            }
            self.have = true;
        }
        let end = (self.end - self.start) as usize;
        Ok(&self.buffer[end - count..end])
    }
}

fn write(entry: &ListedEntry, out: &mut Vec<u8>) {
    let ListedEntry { path, kind, meta, xattrs } = entry;
    out.push(match kind {
        ManifestKind::File(file) if file.is_sparse => SPARSE_FILE,
        ManifestKind::File(_) => FILE,
        ManifestKind::Directory(DirectoryContents::Listed) => DIRECTORY,
        ManifestKind::Directory(DirectoryContents::Unreadable) => UNREAD,
        ManifestKind::Directory(DirectoryContents::Elsewhere) => ELSEWHERE,
        ManifestKind::Link(_) => LINK,
        ManifestKind::Special(_) => SPECIAL,
    });
    let Meta { mode, uid, gid, mtime, nanos } = *meta;
    for number in [mode, uid, gid, nanos] {
        put(out, number.into());
    }
    out.extend_from_slice(&mtime.to_le_bytes());
    match kind {
        ManifestKind::File(FileTag { size, inode, changed, .. }) => {
            put(out, *size);
            put(out, *inode);
            put(out, changed.1.into());
            out.extend_from_slice(&changed.0.to_le_bytes());
        }
        ManifestKind::Link(target) => {
            put(out, target.as_bytes().len() as u64);
            out.extend_from_slice(target.as_bytes());
        }
        ManifestKind::Special(special) => special.put(out),
        ManifestKind::Directory(_) => {}
    }
    put_xattrs(out, xattrs);
    out.extend_from_slice(path);
}

fn read(payload: &[u8], at: u64) -> Result<StoredEntry, FetchError> {
    let read = || -> Result<StoredEntry, FieldError> {
        let mut fields = ListFields(payload);
        let (state, kind) = (StoredState(fields.byte()?), fields.byte()?);
        let (mode, uid, gid) = (fields.small()?, fields.small()?, fields.small()?);
        let meta = Meta { mode, uid, gid, nanos: fields.small()?, mtime: seconds(&mut fields)? };
        let kind = match kind {
            FILE | SPARSE_FILE => {
                let is_sparse = kind == SPARSE_FILE;
                let (size, inode, nanos) = (fields.number()?, fields.number()?, fields.small()?);
                let changed = (seconds(&mut fields)?, nanos);
                let linked_on = None;
                ManifestKind::File(FileTag { size, inode, changed, linked_on, is_sparse })
            }
            LINK => {
                let length = fields.number()? as usize;
                let target = CString::new(fields.bytes(length)?);
                ManifestKind::Link(target.map_err(|_| FieldError::Invalid("NUL"))?)
            }
            SPECIAL => ManifestKind::Special(SpecialFile::take(&mut fields)?),
            UNREAD => ManifestKind::Directory(DirectoryContents::Unreadable),
            ELSEWHERE => ManifestKind::Directory(DirectoryContents::Elsewhere),
            _ => ManifestKind::Directory(DirectoryContents::Listed),
        };
        let xattrs = take_xattrs(&mut fields)?;
        let entry = ListedEntry { path: fields.0.to_owned(), kind, meta, xattrs };
        Ok(StoredEntry { entry, state, at })
    };
    read().map_err(|_| FetchError::ListChanged)
}

fn seconds(fields: &mut ListFields<'_>) -> Result<i64, FieldError> {
    let bytes = fields.bytes(8)?.first_chunk().copied();
    Ok(i64::from_le_bytes(bytes.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::fs::File;
    use thalweg_tree::install::EntryXattrs;

    #[test]
    fn entries_are_read_in_both_directions_whatever_their_length() {
        let place = tempfile::tempdir().unwrap();
        let folder = File::open(place.path()).unwrap();
        let mut store = EntryStore::create(folder.as_fd(), c"store".to_owned()).unwrap();
        let meta = Meta { mode: 0o644, uid: 1, gid: 2, mtime: -3, nanos: 999_999_999 };
        let entry = |n: usize| {
            let kind = match n % 5 {
                0 => ManifestKind::File(FileTag {
                    size: u64::MAX,
                    inode: 9,
                    changed: (i64::MIN, 7),
                    linked_on: None,
                    is_sparse: n.is_multiple_of(2),
                }),
                1 => ManifestKind::Directory(match n % 4 {
                    0 => DirectoryContents::Unreadable,
                    1 => DirectoryContents::Elsewhere,
                    _ => DirectoryContents::Listed,
                }),
                2 => ManifestKind::Link(CString::new("t".repeat((n * 331) % 60_000)).unwrap()),
                3 => ManifestKind::Special(SpecialFile { kind: FileType::Fifo, device: 0 }),
                _ => {
                    let (kind, device) = (FileType::BlockDevice, u32::MAX.into());
                    ManifestKind::Special(SpecialFile { kind, device })
                }
            };
            let value = vec![0; (n * 641) % 65_535];
            let pairs = n.is_multiple_of(4).then(|| (CString::new("user.x").unwrap(), value));
            let xattrs = EntryXattrs::of_pairs(pairs.into_iter().collect());
            ListedEntry { path: "x".repeat((n * 977) % 65_535).into_bytes(), kind, meta, xattrs }
        };
        for n in 0..300 {
            store.push(&entry(n), StoredState(n as u8 % 8)).unwrap();
        }
        store.flush().unwrap();
        let (mut forwards, mut offsets) = (store.entries(), Vec::new());
        for n in 0..300 {
            let found = forwards.next_entry().unwrap().unwrap();
            assert_eq!((found.entry, found.state), (entry(n), StoredState(n as u8 % 8)));
            offsets.push(found.at);
        }
        assert_eq!(forwards.next_entry().unwrap(), None);
        store.touch(offsets[7], StoredState::SAME).unwrap();
        let mut backwards = store.backwards();
        for n in (0..300).rev() {
            let found = backwards.next_entry().unwrap().unwrap();
            assert_eq!((&found.entry, found.at), (&entry(n), offsets[n]));
            assert!(
                n != 7 || found.state.is(StoredState::SAME) && found.state.is(StoredState::TOUCHED)
            );
        }
        assert_eq!(backwards.next_entry().unwrap(), None);
        // If another program truncates the file, the error does not blame the server.
        File::from(store.file.fd.try_clone().unwrap()).set_len(offsets[299]).unwrap();
        let mut forwards = store.entries();
        let found = (0..300).map(|_| forwards.next_entry()).find_map(Result::err).unwrap();
        let back = store.backwards().next_entry().unwrap_err();
        for error in [found, back] {
            assert_eq!(
                error.to_string(),
                "another program changed the temporary copy of the list of files"
            );
        }
    }
}
