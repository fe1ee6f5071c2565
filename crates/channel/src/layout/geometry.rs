//! The fixed fields at the start of a memory file. They do not change after its creation.

use super::{ALIGN, BULK_VERSION, Fault, MOST_CAPACITY, SideWords, VERSION, put, u32_at, u64_at};

/// The owner of a memory file. It determines the format of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Owner of a ring's head and data.
    Producer,
    /// Owner of a ring's tail.
    Consumer,
    /// Sending side of a bulk transfer.
    Sender,
    /// Receiving side of a bulk transfer.
    Receiver,
}

impl Role {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Producer => *b"THALWEGR",
            Self::Consumer => *b"THALWEGC",
            Self::Sender => *b"THALWEGS",
            Self::Receiver => *b"THALWEGV",
        }
    }

    /// Returns the name of the memory in `/proc/PID/maps`.
    pub(crate) const fn name(self) -> &'static str {
        if self.is_of_ring() { "thalweg-ring" } else { "thalweg-bulk" }
    }

    pub(crate) const fn is_of_ring(self) -> bool {
        matches!(self, Self::Producer | Self::Consumer)
    }

    const fn version(self) -> u32 {
        if self.is_of_ring() { VERSION } else { BULK_VERSION }
    }

    /// Returns the opposite role.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Producer => Self::Consumer,
            Self::Consumer => Self::Producer,
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// The fixed fields of a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes before the data.
    pub header: u32,
    /// Bytes of data: a power of two; 0 in a bulk transfer.
    pub capacity: u64,
    /// `true` if the producer writes checksums.
    pub checksums: bool,
    /// A random number that identifies this channel.
    pub epoch: u64,
    /// Process id of the owner, only for readers of a memory dump.
    pub process: u32,
}

/// Maximum number of bytes before the data. It is the largest page size of the supported machines. Without a limit, a
/// peer could make this side allocate up to 2 GiB, because both files of a channel have headers of equal length.
const MOST_HEADER: u64 = 64 << 10;

impl Geometry {
    /// Number of bytes that the fixed fields use.
    pub const LEN: usize = 44;

    /// Returns a description of all fields except `process`, for error messages.
    pub fn in_words(&self) -> String {
        let Self { header, capacity, epoch, .. } = self;
        let checksums = if self.checksums { "with" } else { "without" };
        format!(
            "{capacity} bytes after a header of {header}, {checksums} checksums, in channel {epoch:016x}"
        )
    }

    /// Checks that memory of this role may have these sizes. The error is the reason why not.
    pub fn check(&self, role: Role) -> Result<(), Fault> {
        let page = rustix::param::page_size() as u64;
        let header = u64::from(self.header);
        let headers = page.max(size_of::<SideWords>() as u64)..=MOST_HEADER;
        if !header.is_power_of_two() || !headers.contains(&header) {
            return Err(format!(
                "header_len {header} is not a power of two between {page} and {MOST_HEADER}"
            ));
        }
        if !role.is_of_ring() {
            return match (self.capacity, self.checksums) {
                (0, false) => Ok(()),
                (capacity, flags) => Err(format!(
                    "a bulk transfer requires capacity 0 and flags 0, not {capacity} and {}",
                    u32::from(flags)
                )),
            };
        }
        let sizes = page..=MOST_CAPACITY;
        if !self.capacity.is_power_of_two() || !sizes.contains(&self.capacity) {
            return Err(format!(
                "capacity {} is not a power of two between {page} and {MOST_CAPACITY}",
                self.capacity
            ));
        }
        Ok(())
    }

    /// Returns the number of bytes before the data. They hold all words, and are a multiple of this machine's page
    /// size.
    pub(crate) fn header_len() -> u32 {
        rustix::param::page_size().max(size_of::<SideWords>().next_power_of_two()) as u32
    }

    /// Returns the number of data bytes in the file of this role.
    pub(crate) const fn data_len(&self, role: Role) -> usize {
        match role {
            Role::Producer => self.capacity as usize,
            _ => 0,
        }
    }

    /// Encodes the fixed fields.
    pub fn to_bytes(self, role: Role) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, &role.magic());
        put(&mut bytes, 8, &role.version().to_le_bytes());
        put(&mut bytes, 12, &self.header.to_le_bytes());
        put(&mut bytes, 16, &self.capacity.to_le_bytes());
        put(&mut bytes, 24, &(ALIGN as u32).to_le_bytes());
        put(&mut bytes, 28, &u32::from(self.checksums).to_le_bytes());
        put(&mut bytes, 32, &self.epoch.to_le_bytes());
        put(&mut bytes, 40, &self.process.to_le_bytes());
        bytes
    }

    /// Parses and checks the fixed fields.
    pub fn parse(bytes: &[u8], role: Role) -> Result<Self, Fault> {
        if bytes.len() < Self::LEN {
            return Err(format!(
                "the header page has {} bytes, but at least {} are required",
                bytes.len(),
                Self::LEN
            ));
        }
        if bytes[..8] != role.magic() {
            return Err(format!("magic {:02x?} is not that of a {role:?}", &bytes[..8]));
        }
        match u32_at(bytes, 8) {
            version if version == role.version() => {}
            other => {
                return Err(format!("version {other} is not supported, only {}", role.version()));
            }
        }
        if u64::from(u32_at(bytes, 24)) != ALIGN || u32_at(bytes, 28) > 1 {
            return Err(format!(
                "invalid alignment {} or flags {}",
                u32_at(bytes, 24),
                u32_at(bytes, 28)
            ));
        }
        let geometry = Self {
            header: u32_at(bytes, 12),
            capacity: u64_at(bytes, 16),
            checksums: u32_at(bytes, 28) == 1,
            epoch: u64_at(bytes, 32),
            process: u32_at(bytes, 40),
        };
        geometry.check(role).map(|()| geometry)
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
            assert!(Geometry { capacity, ..good }.check(Role::Producer).is_err(), "{capacity}");
        }
        for header in [0, 64, good.header + 64, good.header * 3, 1 << 17, 1 << 31, u32::MAX] {
            assert!(Geometry { header, ..good }.check(Role::Producer).is_err(), "{header}");
        }
    }

    #[test]
    fn the_memory_of_a_bulk_transfer_has_no_data() {
        let good = Geometry { capacity: 0, checksums: false, ..fine() };
        for role in [Role::Sender, Role::Receiver] {
            assert_eq!(Geometry::parse(&good.to_bytes(role), role), Ok(good));
            assert!(Geometry::parse(&good.to_bytes(role), role.peer()).is_err());
            for bad in [
                Geometry { capacity: 4096, ..good },
                Geometry { checksums: true, ..good },
                Geometry { header: 64, ..good },
                Geometry { header: 1 << 31, ..good },
            ] {
                assert!(Geometry::parse(&bad.to_bytes(role), role).is_err(), "{bad:?}");
            }
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
