//! A tree's list in a file on disk, so that memory use does not grow with its length.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use thalweg_core::atomic_file::{AtomicFile, failed};
use thalweg_sys::io;

use crate::{
    client::FetchError,
    manifest::{FORMAT, FieldError, LONGEST_RECORD, ListRecord, MAGIC, RecordParser},
};

/// A stored list. Its file has no name, or is removed when this value is dropped.
pub struct EntryList {
    file: AtomicFile<OwnedFd, CString>,
    /// The file system of the listed directory, if the server identifies it.
    pub source: Option<String>,
}

/// Size of the buffer. It grows for longer records.
const ROOM: usize = 128 << 10;
/// Length of the head of a list.
const HEAD: u64 = MAGIC.len() as u64 + 1;

impl EntryList {
    /// Creates an empty list in this directory.
    pub fn create(directory: BorrowedFd<'_>) -> Result<Self, FetchError> {
        Ok(Self { file: unnamed(directory, c"list".to_owned())?, source: None })
    }

    /// Returns the file to which the list is written.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.fd.as_fd()
    }

    /// Returns the records from the first one on.
    pub fn records(&self) -> ListRecords<'_> {
        let (parser, buffer) = (RecordParser::default(), Vec::new());
        ListRecords { fd: self.fd(), at: 0, parser, buffer, used: 0, have: 0, has_begun: false }
    }
}

/// Creates a file that has no name, or is removed when the returned value is dropped.
pub fn unnamed(
    directory: BorrowedFd<'_>,
    name: CString,
) -> Result<AtomicFile<OwnedFd, CString>, FetchError> {
    let directory = directory.try_clone_to_owned();
    let directory = directory.map_err(|_| failed("fcntl")(thalweg_sys::Errno::MFILE))?;
    Ok(AtomicFile::create(directory, name, 0o600)?)
}

/// Reads a list, possibly while it is received.
pub struct ListRecords<'a> {
    fd: BorrowedFd<'a>,
    /// File offset of the next read.
    at: u64,
    parser: RecordParser,
    buffer: Vec<u8>,
    /// Parsed bytes of the buffer.
    used: usize,
    /// Bytes in the buffer.
    have: usize,
    has_begun: bool,
}

impl ListRecords<'_> {
    /// Returns the file offset of the next record.
    pub fn offset(&self) -> u64 {
        self.at - (self.have - self.used) as u64
    }

    /// Continues with the entries of a group at this offset.
    pub fn seek(&mut self, offset: u64) {
        (self.at, self.used, self.have, self.has_begun) = (offset, 0, 0, true);
        self.parser = RecordParser::default();
    }

    /// Returns the next record. `None`: the file ends before the record does.
    pub fn next_record(&mut self) -> Result<Option<ListRecord>, FetchError> {
        if !self.has_begun && !self.head()? {
            return Ok(None);
        }
        loop {
            let bytes = &self.buffer[self.used..self.have];
            match self.parser.next(bytes) {
                Ok((record, length)) => {
                    self.used += length;
                    return Ok(Some(record));
                }
                Err(FieldError::Incomplete) if bytes.len() < LONGEST_RECORD => {
                    if !self.fill()? {
                        return Ok(None);
                    }
                }
                Err(FieldError::Incomplete) => return Err(broken("a record is too long")),
                Err(FieldError::Invalid(why)) => return Err(broken(why)),
            }
        }
    }

    /// Returns `true` if bytes of an incomplete record remain.
    pub fn has_rest(&self) -> bool {
        self.used < self.have
    }

    /// Reads the head of the list. Returns `false` if the file ends before the head does.
    fn head(&mut self) -> Result<bool, FetchError> {
        while self.have < HEAD as usize {
            if !self.fill()? {
                return Ok(false);
            }
        }
        if self.buffer[..MAGIC.len()] != *MAGIC || self.buffer[MAGIC.len()] != FORMAT {
            return Err(broken("its format is unknown"));
        }
        (self.used, self.has_begun) = (HEAD as usize, true);
        Ok(true)
    }

    /// Reads more bytes. Returns `false` if the file has none.
    fn fill(&mut self) -> Result<bool, FetchError> {
        let rest = self.have - self.used;
        self.buffer.copy_within(self.used..self.have, 0);
        (self.used, self.have) = (0, rest);
        self.buffer.resize(ROOM.max(2 * rest), 0);
        let read = io::pread(self.fd, &mut self.buffer[rest..], self.at);
        let read = read.map_err(failed("pread"))?;
        (self.at, self.have) = (self.at + read as u64, rest + read);
        Ok(read > 0)
    }
}

/// Returns the error for an invalid list.
pub fn broken(why: &str) -> FetchError {
    FetchError::broken(format!("the list of files is invalid: {why}"))
}
