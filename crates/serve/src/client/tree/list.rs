//! A tree's list in a file on disk, so that memory use does not grow with its length. It is read forwards by line,
//! and backwards, where the entries of a directory precede the directory.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use thalweg_core::atomic_file::{AtomicFile, failed};
use thalweg_sys::io;

use super::entry::{ListTotals, ListedEntry, ListedKind, ParsedLine, parse};
use crate::client::FetchError;

/// A stored list. Its file has no name, or is removed when this is dropped.
pub struct EntryList {
    file: AtomicFile<OwnedFd, CString>,
}

/// The contents of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListContents {
    pub sums: ListTotals,
    pub files: u64,
    /// Entries with names that are reserved for partial files.
    pub reserved: u64,
}

/// Longest line, in bytes. No file system has longer paths.
pub const LONGEST_LINE: usize = 64 << 10;
/// Size of the buffer: a line and the bytes of one read.
const ROOM: usize = 2 * LONGEST_LINE;

impl EntryList {
    /// Creates an empty list in this directory.
    pub fn create(directory: BorrowedFd<'_>) -> Result<Self, FetchError> {
        let directory = directory.try_clone_to_owned();
        let directory = directory.map_err(|_| failed("fcntl")(thalweg_sys::Errno::MFILE))?;
        Ok(Self { file: AtomicFile::create(directory, c"list".to_owned(), 0o600)? })
    }

    /// Returns the file to which the list is written.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.fd.as_fd()
    }

    /// Returns the lines from the first one on.
    pub fn lines(&self) -> ListLines<'_> {
        ListLines { fd: self.fd(), at: 0, buffer: Vec::new(), used: 0, have: 0, last: 0 }
    }

    /// Returns the lines from the last one on, backwards.
    pub fn backwards(&self) -> Result<Backwards<'_>, FetchError> {
        let end = rustix::fs::fstat(&self.file.fd).map_err(failed("fstat"))?.st_size;
        Ok(Backwards { fd: self.fd(), at: u64::try_from(end).unwrap_or(0), rest: Vec::new() })
    }

    /// Reads the whole list and returns an error unless it is complete, every entry follows its directory, and none
    /// occurs twice. Memory use is constant: two positions in the list.
    pub fn check(
        &self,
        mut check_cancelled: impl FnMut() -> Result<(), FetchError>,
    ) -> Result<ListContents, FetchError> {
        let (mut lines, mut order) = (self.lines(), ListOrder::of(self));
        let (mut found, mut end) = (ListContents::default(), None);
        while let Some(line) = lines.next_line()? {
            let number = found.sums.entries + 1;
            let wrong = |why: &str| FetchError::broken(format!("line {number} of the list: {why}"));
            if end.is_some() {
                return Err(wrong("an entry follows the last line"));
            }
            match parse(line).map_err(|why| wrong(&why))? {
                ParsedLine::End(sums) => end = Some(sums),
                ParsedLine::Entry(entry) => {
                    order.check(&entry, number)?.map_err(|why| wrong(&why))?;
                    found.sums.entries = number;
                    found.reserved += u64::from(entry.is_reserved());
                    if let ListedKind::File { size, .. } = entry.kind {
                        found.files += 1;
                        let bytes = found.sums.bytes.checked_add(size);
                        found.sums.bytes =
                            bytes.ok_or_else(|| wrong("the total size overflows"))?;
                    }
                    if number.is_multiple_of(4096) {
                        check_cancelled()?;
                    }
                }
            }
        }
        let Some(end) = end else { return Err(FetchError::broken("the list is incomplete")) };
        if (end.entries, end.bytes) != (found.sums.entries, found.sums.bytes) {
            return Err(FetchError::broken("the list does not match the totals in its last line"));
        }
        if end.entries == 0 {
            return Err(FetchError::broken("the list does not begin with the directory itself"));
        }
        found.sums.left_out = end.left_out;
        Ok(found)
    }
}

/// Checks the order of entries.
struct ListOrder<'a> {
    /// Position after the line of the current directory, which contains the next entries.
    directories: ListLines<'a>,
    /// Number of that line.
    line: u64,
    directory: Vec<u8>,
    last: Option<Vec<u8>>,
}

impl<'a> ListOrder<'a> {
    fn of(list: &'a EntryList) -> Self {
        Self { directories: list.lines(), line: 0, directory: Vec::new(), last: None }
    }

    /// Checks an entry. The inner error is the reason why the list is invalid. `number`: number of the entry's line.
    fn check(
        &mut self,
        entry: &ListedEntry,
        number: u64,
    ) -> Result<Result<(), String>, FetchError> {
        let is_top = entry.path.is_empty();
        if is_top != (number == 1) {
            let why = "only the first line may be the directory itself";
            return Ok(Err(why.to_owned()));
        }
        if is_top {
            return Ok(Ok(()));
        }
        if self.last.is_none() || entry.directory() != self.directory {
            // Searches only forwards: the entries of each directory must be contiguous.
            if !self.find(entry.directory(), number)? {
                let why = "its directory is not listed before it, or the entries are not sorted";
                return Ok(Err(why.to_owned()));
            }
            self.last = None;
        }
        let name = entry.name_bytes();
        if self.last.as_ref().is_some_and(|last| name <= &**last) {
            return Ok(Err("its name is listed twice, or the entries are not sorted".to_owned()));
        }
        self.last = Some(name.to_owned());
        Ok(Ok(()))
    }

    /// Advances to the line of this directory, if it precedes line `number`.
    fn find(&mut self, directory: &[u8], number: u64) -> Result<bool, FetchError> {
        while self.line + 1 < number {
            self.line += 1;
            let Some(line) = self.directories.next_line()? else { return Ok(false) };
            if may_be_directory(line)
                && let Ok(ParsedLine::Entry(ListedEntry {
                    path, kind: ListedKind::Directory, ..
                })) = parse(line)
                && path == directory
            {
                self.directory = path;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns `true` if a line may be that of a directory, so that most lines need not be parsed.
pub fn may_be_directory(line: &[u8]) -> bool {
    line.windows(8).take(64).any(|window| window == b"\"folder\"")
}

/// Reads a list forwards.
pub struct ListLines<'a> {
    fd: BorrowedFd<'a>,
    at: u64,
    buffer: Vec<u8>,
    used: usize,
    have: usize,
    /// Offset of the last line in the buffer.
    last: usize,
}

impl ListLines<'_> {
    /// Puts the last line back, so that it is returned again.
    pub fn unread(&mut self) {
        self.used = self.last;
    }

    /// Returns the offset of the next line.
    pub fn offset(&self) -> u64 {
        self.at - (self.have - self.used) as u64
    }

    /// Continues at the line with this offset.
    pub fn seek(&mut self, offset: u64) {
        (self.at, self.used, self.have, self.last) = (offset, 0, 0, 0);
    }

    /// Returns the next line, without its newline.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, FetchError> {
        let mut looked_at = self.used;
        loop {
            let new = &self.buffer[looked_at..self.have];
            if let Some(length) = new.iter().position(|byte| *byte == b'\n') {
                let (from, to) = (self.used, looked_at + length);
                (self.last, self.used) = (from, to + 1);
                return line(&self.buffer[from..to]).map(Some);
            }
            let rest = self.have - self.used;
            if rest > LONGEST_LINE {
                return Err(too_long());
            }
            self.buffer.copy_within(self.used..self.have, 0);
            (self.used, self.have, looked_at) = (0, rest, rest);
            self.buffer.resize(ROOM, 0);
            let read = io::pread(self.fd, &mut self.buffer[rest..], self.at);
            let read = read.map_err(failed("pread"))?;
            (self.at, self.have) = (self.at + read as u64, rest + read);
            if read == 0 {
                (self.last, self.used) = (0, self.have);
                return if rest == 0 { Ok(None) } else { line(&self.buffer[..rest]).map(Some) };
            }
        }
    }
}

/// Reads a list backwards.
pub struct Backwards<'a> {
    fd: BorrowedFd<'a>,
    /// File offset of the first byte in `rest`.
    at: u64,
    rest: Vec<u8>,
}

impl Backwards<'_> {
    /// Returns the previous line, without its newline.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
        loop {
            let text = self.rest.strip_suffix(b"\n").unwrap_or(&self.rest);
            if let Some(before) = text.iter().rposition(|byte| *byte == b'\n') {
                let found = text[before + 1..].to_vec();
                self.rest.truncate(before + 1);
                return Ok(Some(found));
            }
            if self.at == 0 {
                let found = text.to_vec();
                return Ok(if std::mem::take(&mut self.rest).is_empty() {
                    None
                } else {
                    Some(found)
                });
            }
            let length = self.at.min(LONGEST_LINE as u64);
            let mut block = vec![0; length as usize];
            let read = io::pread(self.fd, &mut block, self.at - length);
            if read.map_err(failed("pread"))? as u64 != length {
                return Err(FetchError::broken("the stored list was truncated"));
            }
            self.at -= length;
            block.append(&mut self.rest);
            self.rest = block;
        }
    }
}

fn line(line: &[u8]) -> Result<&[u8], FetchError> {
    if line.len() > LONGEST_LINE { Err(too_long()) } else { Ok(line) }
}

fn too_long() -> FetchError {
    FetchError::broken(format!("a line of the list is longer than {LONGEST_LINE} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn list(text: &str) -> EntryList {
        let place = tempfile::tempdir().unwrap();
        let list = EntryList::create(File::open(place.path()).unwrap().as_fd()).unwrap();
        assert_eq!(io::pwrite(list.fd(), text.as_bytes(), 0).unwrap(), text.len());
        list
    }

    fn of(entries: &[&str]) -> String {
        let meta = r#""mode":1,"uid":0,"gid":0,"mtime":1,"nanos":2"#;
        let line = |entry: &&str| match entry.strip_suffix('/') {
            Some(path) => format!("{{\"type\":\"folder\",\"path\":\"{path}\",{meta}}}\n"),
            None => format!(
                "{{\"type\":\"file\",\"path\":\"{entry}\",\"size\":2,{meta},\"etag\":\"x\"}}\n"
            ),
        };
        let files = entries.iter().filter(|entry| !entry.ends_with('/')).count();
        let (count, bytes) = (entries.len(), 2 * files);
        let end =
            format!("{{\"type\":\"end\",\"entries\":{count},\"bytes\":{bytes},\"left_out\":0}}");
        entries.iter().map(line).chain([end]).collect()
    }

    fn check(text: &str) -> Result<ListContents, FetchError> {
        list(text).check(|| Ok(()))
    }

    #[test]
    fn a_list_is_in_order_and_every_folder_comes_before_what_is_in_it() {
        let good: &[&[&str]] = &[
            &["/"],
            &["/", "a", "b/", "c/", "b/x", "b/y/", "c/x", "b/y/z"],
            &["/", "a/", "b/", "b/x"],
            &["/", "a", "a-/", "a.", "a-/x"],
        ];
        for entries in good {
            let found = check(&of(entries)).unwrap();
            assert_eq!(found.sums.entries, entries.len() as u64);
        }
        let bad: &[&[&str]] = &[
            &[],
            &["a"],
            &["/", "/"],
            &["/", "a", "a"],
            &["/", "b", "a"],
            &["/", "a", "a/x"],
            &["/", "a/", "a"],
            &["/", "a/x"],
            &["/", "a/x", "a/"],
            &["/", "a/", "b/", "b/x", "a/x"],
            &["/", "a/", "a/x", "b"],
            &["/", "a/", "b/", "a/x", "b/x", "a/y"],
        ];
        for entries in bad {
            assert!(check(&of(entries)).is_err(), "{entries:?}");
        }
    }

    #[test]
    fn a_list_that_is_cut_or_miscounted_is_refused() {
        let whole = of(&["/", "a", "b/", "b/x"]);
        assert_eq!(check(&whole).unwrap().files, 2);
        for cut in 0..whole.len() {
            assert!(check(&whole[..cut]).is_err(), "{cut}");
        }
        for (from, to) in [
            ("\"bytes\":4", "\"bytes\":5"),
            ("\"entries\":4", "\"entries\":5"),
            ("\"size\":2", "\"size\":18446744073709551615"),
        ] {
            assert!(check(&whole.replace(from, to)).is_err(), "{to}");
        }
        let more = format!("{whole}\n{}", of(&["/"]));
        assert!(check(&more).is_err());
    }

    #[test]
    fn lines_come_forwards_and_backwards_whatever_their_length() {
        let lines: Vec<String> =
            (0..300).map(|n: usize| "x".repeat((n * 977) % LONGEST_LINE)).collect();
        for end in ["", "\n"] {
            let list = list(&(lines.join("\n") + end));
            let (mut forwards, mut there) = (list.lines(), Vec::new());
            while let Some(line) = forwards.next_line().unwrap() {
                let length = line.len();
                forwards.unread();
                assert_eq!(forwards.next_line().unwrap().map(<[u8]>::len), Some(length));
                there.push(length);
            }
            let (mut backwards, mut back) = (list.backwards().unwrap(), Vec::new());
            while let Some(line) = backwards.next_line().unwrap() {
                back.insert(0, line.len());
            }
            assert_eq!(there, lines.iter().map(String::len).collect::<Vec<_>>());
            assert_eq!(back, there);
        }
        let giant = list(&"x".repeat(LONGEST_LINE + 1));
        assert!(giant.lines().next_line().is_err());
        assert!(list(&"x".repeat(10 * LONGEST_LINE)).lines().next_line().is_err());
    }
}
