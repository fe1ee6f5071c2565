//! Reads numbers and byte strings of a plan. Numbers are little-endian, and strings follow their length.

use super::PlanError;

/// The bytes that remain to be read.
pub(super) struct PlanBytes<'a>(pub &'a [u8]);

impl<'a> PlanBytes<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], PlanError> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(PlanError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PlanError> {
        self.take(N)?.try_into().map_err(|_| PlanError::Short)
    }

    pub fn u8(&mut self) -> Result<u8, PlanError> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, PlanError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, PlanError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, PlanError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, PlanError> {
        self.array().map(i64::from_le_bytes)
    }

    /// Checks that no bytes remain.
    pub fn end(&self) -> Result<(), PlanError> {
        if self.0.is_empty() { Ok(()) } else { Err(PlanError::Nonsense("trailing bytes")) }
    }
}
