//! FIFOs, sockets and devices.

use rustix::fs::FileType;

use super::fields::{FieldError, ListFields, put};

/// A FIFO, a socket or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialFile {
    pub kind: FileType,
    /// The number of a device (`st_rdev`, at most 32 bits); 0 for other types.
    pub device: u64,
}

impl SpecialFile {
    /// Returns a special file of this type; `None` for a regular file, a directory or a symbolic link.
    pub fn of(kind: FileType, device: u64) -> Option<Self> {
        match kind {
            FileType::Fifo | FileType::Socket => Some(Self { kind, device: 0 }),
            FileType::CharacterDevice | FileType::BlockDevice => Some(Self { kind, device }),
            _ => None,
        }
    }

    /// Appends the type as a byte with the value of `d_type` and, for a device, its number.
    pub fn put(self, out: &mut Vec<u8>) {
        out.push((self.kind.as_raw_mode() >> 12) as u8);
        if self.is_device() {
            put(out, self.device);
        }
    }

    /// Reads the fields that [`Self::put`] appended.
    pub fn take(fields: &mut ListFields<'_>) -> Result<Self, FieldError> {
        let kind = u32::from(fields.byte()?);
        let known = Some(FileType::from_raw_mode(kind << 12)).filter(|_| kind < 16);
        let special = known.and_then(|kind| Self::of(kind, 0));
        let special = special.ok_or(FieldError::Invalid("a special file has an unknown type"))?;
        let device = if special.is_device() { fields.small()?.into() } else { 0 };
        Ok(Self { device, ..special })
    }

    /// Returns `true` for a character or block device.
    pub fn is_device(self) -> bool {
        matches!(self.kind, FileType::CharacterDevice | FileType::BlockDevice)
    }
}
