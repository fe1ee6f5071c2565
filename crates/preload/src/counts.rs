//! Creates and reads the file of counts, outside of the program under test.

use crate::layout::{
    CHOSEN_AT, CLASSES, KINDS, LEN, MAGIC, MAGIC_AT, PROCESSES_AT, WITHOUT_LIBC_AT, word,
};

/// Counts of all processes of a program together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of processes in which the preloaded object started.
    pub processes: u64,
    /// Number of processes that use the requested kernels.
    pub chosen: u64,
    /// Number of processes in which libc's functions were not found. There, size bands of libc use a slow
    /// loop.
    pub without_libc: u64,
    /// Calls by kind and size, without empty classes.
    pub classes: Vec<CallClass>,
}

/// Calls of one kind, with sizes between two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallClass {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Smallest size, in bytes.
    pub from: u64,
    /// Largest size, in bytes.
    pub upto: u64,
    /// Number of calls.
    pub calls: u64,
    /// Total number of bytes.
    pub bytes: u64,
}

/// Returns the contents of an empty file of counts.
pub fn blank() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[MAGIC_AT * 8..][..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes
}

impl Counts {
    /// Parses a file of counts. Returns an error if it has another format.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let (words, _) = bytes.as_chunks::<8>();
        let at = |place: usize| words.get(place).map_or(0, |word| u64::from_ne_bytes(*word));
        if bytes.len() != LEN || at(MAGIC_AT) != MAGIC {
            return Err(format!(
                "not a file of call counts ({} bytes, or another format)",
                bytes.len()
            ));
        }
        let classes = KINDS.iter().enumerate().flat_map(|(number, kind)| {
            (0..CLASSES).map(move |class| CallClass {
                kind,
                from: if class == 0 { 0 } else { 1 << (class - 1) },
                upto: if class == 0 { 0 } else { u64::MAX >> (CLASSES - 1 - class) },
                calls: at(word(number, class)),
                bytes: at(word(number, class) + 1),
            })
        });
        Ok(Self {
            processes: at(PROCESSES_AT),
            chosen: at(CHOSEN_AT),
            without_libc: at(WITHOUT_LIBC_AT),
            classes: classes.filter(|class| class.calls > 0).collect(),
        })
    }

    /// Returns the number of all calls.
    pub fn calls(&self) -> u64 {
        self.classes.iter().fold(0, |sum, class| sum.saturating_add(class.calls))
    }

    /// Returns the number of all bytes.
    pub fn bytes(&self) -> u64 {
        self.classes.iter().fold(0, |sum, class| sum.saturating_add(class.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{MOVE, class};

    #[test]
    fn sizes_lie_in_their_classes() {
        let mut bytes = blank();
        for size in [0, 1, 2, 3, 4, 7, 8, 4095, 4096, usize::MAX] {
            let at = word(MOVE, class(size)) * 8;
            bytes[at] += 1;
            let counts = Counts::read(&bytes).unwrap();
            let inside = |c: &&CallClass| (c.from..=c.upto).contains(&(size as u64));
            assert_eq!(counts.classes.iter().filter(inside).count(), 1, "{size}");
            assert!(counts.classes.iter().all(|c| c.kind == "memmove"));
        }
        assert_eq!(Counts::read(&bytes).unwrap().calls(), 10);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(Counts::read(&blank()).unwrap(), Counts::default());
        assert!(Counts::read(&blank()[1..]).is_err());
        assert!(Counts::read(&vec![0; LEN]).is_err());
        assert!(Counts::read(b"").is_err());
    }
}
