//! Reads the parts of an ELF file that decide whether an object can be preloaded into it. Files are untrusted: every
//! number is checked before use.

/// The information from a file's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The program interpreter, that is the dynamic loader; `None` for a static program.
    pub loader: Option<String>,
    /// `true` if the file is for the architecture and word size of this machine.
    pub ours: bool,
    /// `true` if the Go toolchain linked it.
    pub go: bool,
}

/// Bytes at the start of a file that contain the headers of any valid program.
pub const HEAD: usize = 64 << 10;

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
#[cfg(target_arch = "x86_64")]
const MACHINE: u64 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u64 = 183;
/// A number that no machine has, so no file matches.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u64 = u64::MAX;

impl Elf {
    /// Parses the head of a file; `None` if it is not an ELF file.
    pub fn read(head: &[u8]) -> Option<Self> {
        if !head.starts_with(MAGIC) {
            return None;
        }
        let is_64 = head.get(4) == Some(&CLASS_64) && head.get(5) == Some(&LITTLE_ENDIAN);
        if !is_64 || number(head, 18, 2) != Some(MACHINE) {
            return Some(Self::default());
        }
        let mut elf = Self { ours: true, ..Self::default() };
        let (table, size, count) =
            (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
        for n in 0..count {
            let at = usize::try_from(table.checked_add(n * size)?).ok()?;
            let Some(kind) = number(head, at, 4) else { break };
            let part = || {
                let from = usize::try_from(number(head, at + 8, 8)?).ok()?;
                let len = usize::try_from(number(head, at + 32, 8)?).ok()?;
                head.get(from..from.checked_add(len)?)
            };
            match (kind, part()) {
                (PT_INTERP, path) => {
                    let path = path.unwrap_or_default();
                    let path = path.strip_suffix(b"\0").unwrap_or(path);
                    elf.loader = Some(String::from_utf8_lossy(path).into_owned());
                }
                // The name of a note follows three 32-bit numbers: two lengths and a type.
                (PT_NOTE, Some(note)) => elf.go |= note.get(12..16) == Some(b"Go\0\0"),
                _ => {}
            }
        }
        Some(elf)
    }
}

/// Reads a little-endian number of this length; `None` past the end.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(len)?)?;
    Some(part.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns an ELF file with these program headers: type and content of each.
    pub fn program(machine: u64, parts: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * parts.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let put = |bytes: &mut Vec<u8>, at: usize, len: usize, value: u64| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(&mut bytes, 18, 2, machine);
        put(&mut bytes, 32, 8, 64);
        put(&mut bytes, 54, 2, 56);
        put(&mut bytes, 56, 2, parts.len() as u64);
        for (n, (kind, part)) in parts.iter().enumerate() {
            let (at, end) = (64 + 56 * n, bytes.len() as u64);
            put(&mut bytes, at, 4, *kind);
            put(&mut bytes, at + 8, 8, end);
            put(&mut bytes, at + 32, 8, part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes
    }

    #[test]
    fn a_program_with_a_loader_is_dynamic_and_one_without_is_not() {
        let dynamic = program(MACHINE, &[(1, b"x"), (PT_INTERP, b"/lib/ld.so\0")]);
        let elf = Elf::read(&dynamic).unwrap();
        assert_eq!(elf, Elf { loader: Some("/lib/ld.so".to_owned()), ours: true, go: false });
        let go = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0id..";
        let elf = Elf::read(&program(MACHINE, &[(PT_NOTE, go)])).unwrap();
        assert_eq!(elf, Elf { loader: None, ours: true, go: true });
    }

    #[test]
    fn other_machines_and_other_files_are_distinguished() {
        assert!(!Elf::read(&program(8, &[])).unwrap().ours);
        let mut small = program(MACHINE, &[]);
        small[4] = 1;
        assert!(!Elf::read(&small).unwrap().ours);
        assert_eq!(Elf::read(b"#!/bin/sh\n"), None);
        assert_eq!(Elf::read(b""), None);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(Elf::read(&own[..HEAD]).unwrap().loader.is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            at in prop::collection::vec((0_usize..176, any::<u8>()), 0..40),
            len in 0_usize..200,
        ) {
            let mut bytes = program(MACHINE, &[(PT_INTERP, b"/lib/ld.so\0"), (PT_NOTE, b"Go")]);
            for (at, byte) in at {
                bytes[at] = byte;
            }
            bytes.truncate(len);
            let _ = Elf::read(&bytes);
        }
    }
}
