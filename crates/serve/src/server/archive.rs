//! A directory tree as a tar archive. File contents are separate parts of the body, so that the transfer mechanisms
//! send them.

use std::io::{self, Read};

use tar::{Builder, EntryType, Header};

use super::{
    body::{BodyPart, BodyPiece, Supply, SupplyTurn, TURN_BYTES, TURN_ENTRIES},
    tasks::HelperLane,
    walk::{OmittedEntry, TreeWalk, WalkEntry, WalkKind, WalkStep},
};
use crate::http::range::ByteRange;

/// Produces the entries of an archive, a few per turn. If an entry cannot be read, the archive ends incomplete, because
/// a client would not notice a missing entry.
pub struct Archive {
    tree: TreeWalk,
    /// The error that ends the answer once the entries before it are sent.
    failed: Option<String>,
}

/// Maximum number of files in a piece, unless the server has many connections. Each file stays open until it is sent.
const FILES: usize = 8;

/// Block size of the tar format.
const BLOCK: u64 = 512;

/// Longest target of a symbolic link in a header, in bytes.
const LONGEST_TARGET: usize = 100;

impl Archive {
    /// Creates the archive of a tree.
    pub fn of(tree: TreeWalk) -> Self {
        Self { tree, failed: None }
    }

    fn parts(&self, entry: &WalkEntry) -> Result<Vec<BodyPart>, String> {
        let failed = |error: io::Error| error.to_string();
        let path = self.tree.path(&entry.name);
        let missed = || OmittedEntry { path: path.clone(), is_missed: true }.words();
        let mut header = Header::new_gnu();
        header.set_mode(entry.stat.st_mode & 0o7777);
        header.set_uid(entry.stat.st_uid.into());
        header.set_gid(entry.stat.st_gid.into());
        header.set_mtime(u64::try_from(entry.stat.st_mtime).unwrap_or(0));
        header.set_size(0);
        let mut blocks = Builder::new(Vec::new());
        if !matches!(entry.kind, WalkKind::Shut) {
            append_exact_time(&mut blocks, entry.stat.st_mtime, entry.stat.st_mtime_nsec as u32)
                .map_err(failed)?;
        }
        match &entry.kind {
            WalkKind::Shut | WalkKind::Elsewhere | WalkKind::Special(_) => return Err(missed()),
            WalkKind::Directory => {
                header.set_entry_type(EntryType::Directory);
                blocks.append_data(&mut header, &path, io::empty()).map_err(failed)?;
            }
            WalkKind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                append_long_target(&mut blocks, target.as_bytes()).map_err(failed)?;
                let short = &target.as_bytes()[..target.as_bytes().len().min(LONGEST_TARGET)];
                header.set_link_name_literal(short).map_err(failed)?;
                blocks.append_data(&mut header, &path, io::empty()).map_err(failed)?;
            }
            WalkKind::File => {
                let file = self.tree.open(&path).ok_or_else(missed)?;
                let size = file.version.size;
                header.set_size(size);
                // Without a body, the builder writes the header only.
                blocks.append_data(&mut header, &path, io::empty()).map_err(failed)?;
                let head = std::mem::take(blocks.get_mut());
                let padding = vec![0; (size.next_multiple_of(BLOCK) - size) as usize];
                let body = BodyPart::File(file, ByteRange { from: 0, to: size });
                return Ok(vec![BodyPart::Bytes(head), body, BodyPart::Bytes(padding)]);
            }
        }
        Ok(vec![BodyPart::Bytes(std::mem::take(blocks.get_mut()))])
    }
}

impl Archive {
    fn fill(&mut self, turn: &SupplyTurn<'_>, piece: &mut BodyPiece) -> Result<(), String> {
        let (mut files, mut bytes) = (0, 0);
        let most = if self.tree.is_crowded() { 1 } else { FILES };
        for _ in 0..TURN_ENTRIES {
            match self.tree.next(turn)? {
                WalkStep::Entry(entry) => {
                    let parts = self.parts(&entry)?;
                    files += usize::from(matches!(entry.kind, WalkKind::File));
                    bytes += parts.iter().map(memory).sum::<usize>();
                    piece.parts.extend(parts);
                }
                WalkStep::LeftOut(left_out) if left_out.is_missed => return Err(left_out.words()),
                WalkStep::LeftOut(_) | WalkStep::Excluded | WalkStep::Enter(_) => {}
                WalkStep::Later => return Ok(()),
                WalkStep::End => {
                    piece.parts.push(BodyPart::Bytes(vec![0; 2 * BLOCK as usize]));
                    piece.is_last = true;
                    return Ok(());
                }
            }
            if files >= most || bytes >= TURN_BYTES {
                break;
            }
        }
        Ok(())
    }
}

/// Appends a pax record with the time of the next entry, if a tar header cannot express the time. Headers hold whole
/// seconds since 1970.
fn append_exact_time(blocks: &mut Builder<Vec<u8>>, seconds: i64, nanos: u32) -> io::Result<()> {
    if seconds >= 0 && nanos == 0 {
        return Ok(());
    }
    let record = pax_record("mtime", &decimal(seconds, nanos));
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    header.set_mode(0o644);
    header.set_size(record.len() as u64);
    blocks.append_data(&mut header, "PaxHeaders/mtime", record.as_bytes())
}

/// Appends a GNU record with the target of the symbolic link that follows, if it does not fit into a header. The tar
/// library would normalize targets.
fn append_long_target(blocks: &mut Builder<Vec<u8>>, target: &[u8]) -> io::Result<()> {
    if target.len() <= LONGEST_TARGET {
        return Ok(());
    }
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongLink);
    header.set_mode(0o644);
    header.set_size(target.len() as u64 + 1);
    blocks.append_data(&mut header, "LongLink", target.chain(&[0][..]))
}

/// A record of a pax header: its own length in bytes, the key and the value.
fn pax_record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

/// Seconds since 1970 as a decimal fraction. Nanoseconds count forward, also for times before 1970.
fn decimal(seconds: i64, nanos: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.unsigned_abs();
    format!("{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000)
}

fn memory(part: &BodyPart) -> usize {
    match part {
        BodyPart::Bytes(bytes) => bytes.len(),
        BodyPart::File(..) => 0,
    }
}

impl Supply for Archive {
    fn next(&mut self, turn: &SupplyTurn<'_>) -> Result<BodyPiece, String> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut piece = BodyPiece::default();
        let filled = self.fill(turn, &mut piece);
        self.tree.rest();
        match filled {
            Err(error) if piece.parts.is_empty() => return Err(error),
            Err(error) => self.failed = Some(error),
            Ok(()) => {}
        }
        Ok(piece)
    }

    fn lane(&self) -> HelperLane {
        self.tree.lane()
    }

    fn held(&self) -> u64 {
        self.tree.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimal_fractions_and_records_count_themselves() {
        assert_eq!(decimal(1, 5), "1.000000005");
        assert_eq!(decimal(-1, 500_000_000), "-0.500000000");
        assert_eq!(decimal(-2, 0), "-2.000000000");
        assert_eq!(decimal(-2, 250_000_000), "-1.750000000");
        for value in ["1", "12345", "x".repeat(88).as_str(), "x".repeat(89).as_str()] {
            let record = pax_record("mtime", value);
            assert_eq!(record.split(' ').next(), Some(&*record.len().to_string()));
        }
    }
}
