//! The first page of each side's memory: fixed fields, then four words that change, each with 128
//! bytes of its own, because processors fetch cache lines in pairs.

use super::{ALIGN, Fault, MOST_CAPACITY, VERSION, put, u32_at, u64_at};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64};
use thalweg_sys::robust::Node;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Head and data.
    Producer,
    /// Tail.
    Consumer,
}

impl Role {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Producer => *b"THALWEGR",
            Self::Consumer => *b"THALWEGC",
        }
    }
}

/// 128 bytes that nothing else shares.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Pair<T>(pub T);

/// The words of a page, at their offsets. All are written by the owner of the memory only.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// 0: [`Geometry`], copied out once and never looked at again: its owner could change it.
    pub fixed: Pair<UnsafeCell<[u8; 128]>>,
    /// 128: head or tail, in bytes since the beginning.
    pub cursor: Pair<AtomicU64>,
    /// 256: counts the wake-ups given to the other side, which sleeps on it.
    pub wake: Pair<AtomicU32>,
    /// 384: whether and how the owner sleeps.
    pub waiting: Pair<AtomicU32>,
    /// 512: the kernel's mark of the owner's end; 528: 1 after its goodbye.
    pub alive: Pair<Alive>,
}

/// The words about the owner's life.
#[repr(C)]
#[derive(Debug)]
pub struct Alive {
    /// Kernel-marked.
    pub node: Node,
    /// 0, or 1 after the goodbye.
    pub closed: AtomicU32,
}

const _: () = {
    assert!(std::mem::offset_of!(Page, cursor) == 128);
    assert!(std::mem::offset_of!(Page, wake) == 256);
    assert!(std::mem::offset_of!(Page, waiting) == 384);
    assert!(std::mem::offset_of!(Page, alive) == 512);
    assert!(std::mem::offset_of!(Alive, closed) == 16);
    assert!(size_of::<Page>() == 640);
    assert!(cfg!(target_endian = "little"), "the words are little endian and used in place");
};

/// The fixed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes before the data.
    pub header: u32,
    /// Bytes of data: a power of two.
    pub capacity: u64,
    /// Whether the producer writes checksums.
    pub checksums: bool,
    /// A random number that this channel alone has.
    pub epoch: u64,
    /// Process id of the owner, for people who look at a dump.
    pub process: u32,
}

impl Geometry {
    /// Bytes of the fixed fields in use.
    pub const LEN: usize = 44;

    /// Whether a ring can have these sizes: the reason if not.
    pub fn check(&self) -> Result<(), Fault> {
        let page = rustix::param::page_size() as u64;
        let header = u64::from(self.header);
        if header < size_of::<Page>() as u64 || !header.is_power_of_two() || header < page {
            return Err(format!("header_len {header} is no power of two and multiple of {page}"));
        }
        let sizes = page..=MOST_CAPACITY;
        if !self.capacity.is_power_of_two() || !sizes.contains(&self.capacity) {
            return Err(format!(
                "capacity {} is no power of two between {page} and {MOST_CAPACITY}",
                self.capacity
            ));
        }
        Ok(())
    }

    /// The fixed fields as bytes.
    pub fn to_bytes(self, role: Role) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, &role.magic());
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 12, &self.header.to_le_bytes());
        put(&mut bytes, 16, &self.capacity.to_le_bytes());
        put(&mut bytes, 24, &(ALIGN as u32).to_le_bytes());
        put(&mut bytes, 28, &u32::from(self.checksums).to_le_bytes());
        put(&mut bytes, 32, &self.epoch.to_le_bytes());
        put(&mut bytes, 40, &self.process.to_le_bytes());
        bytes
    }

    /// Reads the fixed fields and checks them.
    pub fn parse(bytes: &[u8], role: Role) -> Result<Self, Fault> {
        if bytes.len() < Self::LEN {
            return Err(format!("a page of {} bytes: at least {} wanted", bytes.len(), Self::LEN));
        }
        if bytes[..8] != role.magic() {
            return Err(format!("magic {:02x?} is not {role:?}'s", &bytes[..8]));
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            other => return Err(format!("version {other}: only {VERSION} is known")),
        }
        if u64::from(u32_at(bytes, 24)) != ALIGN || u32_at(bytes, 28) > 1 {
            return Err(format!("align {}, flags {}", u32_at(bytes, 24), u32_at(bytes, 28)));
        }
        let geometry = Self {
            header: u32_at(bytes, 12),
            capacity: u64_at(bytes, 16),
            checksums: u32_at(bytes, 28) == 1,
            epoch: u64_at(bytes, 32),
            process: u32_at(bytes, 40),
        };
        geometry.check().map(|()| geometry)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn fine() -> Geometry {
        let header = rustix::param::page_size() as u32;
        let capacity = u64::from(header) * 4;
        Geometry { header, capacity, checksums: true, epoch: 0x0123_4567_89ab_cdef, process: 77 }
    }

    #[test]
    fn fields_come_back_and_other_roles_are_refused() {
        let bytes = fine().to_bytes(Role::Producer);
        assert_eq!(Geometry::parse(&bytes, Role::Producer), Ok(fine()));
        let refused = Geometry::parse(&bytes, Role::Consumer).unwrap_err();
        assert!(refused.contains("magic"), "{refused}");
        assert!(Geometry::parse(&bytes[..43], Role::Producer).is_err());
    }

    #[test]
    fn sizes_that_make_no_ring_are_refused() {
        let good = fine();
        for capacity in [0, 1, 4095, good.capacity + 1, MOST_CAPACITY * 2, u64::MAX] {
            assert!(Geometry { capacity, ..good }.check().is_err(), "{capacity}");
        }
        for header in [0, 64, good.header + 64, good.header * 3, u32::MAX] {
            assert!(Geometry { header, ..good }.check().is_err(), "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_crash_the_parser(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            at in 8usize..44,
            value: u8,
        ) {
            let _ = Geometry::parse(&bytes, Role::Producer);
            let mut near = fine().to_bytes(Role::Producer);
            near[at] = value;
            if let Ok(parsed) = Geometry::parse(&near, Role::Producer) {
                prop_assert_eq!(parsed.to_bytes(Role::Producer), near);
            }
        }
    }
}
