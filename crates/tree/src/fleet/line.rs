//! A line of a worker's journal, which records a completed task. All lines have one length, so a torn line is
//! recognized. Only the last line can be torn.

use xxhash_rust::xxh3::xxh3_64;

/// Length of a line in bytes, including its newline.
pub const LINE: usize = 69;
/// Length of the part that the checksum covers.
const BODY: usize = 52;

/// A completed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLine {
    /// The number of the task.
    pub task: u32,
    /// Bytes moved for the task, without those that already existed.
    pub bytes: u64,
    /// XXH3 of its record in the plan, which contains names, sizes and times of its files.
    pub what: u64,
    /// Milliseconds since the worker started, by its own clock.
    pub at: u32,
}

impl JournalLine {
    /// Returns the line for a journal of this plan.
    pub fn to_bytes(&self, plan: u64) -> [u8; LINE] {
        let Self { task, bytes, what, at } = self;
        seal(&format!("{task:08x} {bytes:016x} {what:016x} {at:08x} "), plan)
    }

    /// Parses a line. Returns `None` if it is torn, modified or of another plan.
    pub fn parse(line: &[u8], plan: u64) -> Option<Self> {
        let mut words = unseal(line, plan)?.split(' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (task, bytes, what) = (number()? as u32, number()?, number()?);
        Some(Self { task, bytes, what, at: number()? as u32 })
    }
}

/// Returns a line with this body of [`BODY`] bytes. The line ends with a checksum of the body and the plan.
pub(super) fn seal(body: &str, plan: u64) -> [u8; LINE] {
    let sum = xxh3_64(&[body.as_bytes(), &plan.to_le_bytes()].concat());
    let mut line = [0; LINE];
    line.copy_from_slice(format!("{body}{sum:016x}\n").as_bytes());
    line
}

/// Returns the body of a line. `None` if the line is torn, modified or of another plan.
pub(super) fn unseal(line: &[u8], plan: u64) -> Option<&str> {
    let body = std::str::from_utf8(line.get(..BODY)?).ok()?;
    (seal(body, plan) == *line).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_any_other_byte_makes_it_none() {
        for line in [
            JournalLine { task: 0, bytes: 0, what: 0, at: 0 },
            JournalLine { task: u32::MAX, bytes: u64::MAX, what: 1, at: u32::MAX },
        ] {
            let bytes = line.to_bytes(7);
            assert_eq!(JournalLine::parse(&bytes, 7), Some(line));
            assert_eq!(JournalLine::parse(&bytes, 8), None);
            for at in 0..LINE {
                assert_eq!(JournalLine::parse(&bytes[..at], 7), None);
                let mut other = bytes;
                other[at] ^= 1;
                assert_eq!(JournalLine::parse(&other, 7), None, "byte {at}");
            }
        }
    }
}
