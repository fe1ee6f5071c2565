//! Numbers and byte strings of a list.

/// Appends a number: 7 bits per byte, the lowest first. The high bit of a byte is set if another one follows.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number. A number near 0 takes few bytes.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// The reason why bytes cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The bytes end within the record.
    Incomplete,
    Invalid(&'static str),
}

/// Bytes that are parsed from the front.
#[derive(Clone, Copy, Debug)]
pub struct ListFields<'a>(pub &'a [u8]);

impl<'a> ListFields<'a> {
    /// Takes this number of bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], FieldError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FieldError::Incomplete)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> Result<u8, FieldError> {
        let (byte, rest) = self.0.split_first().ok_or(FieldError::Incomplete)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// Takes a number that [`put`] wrote.
    pub fn number(&mut self) -> Result<u64, FieldError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(FieldError::Invalid("a number in a record is too large"))
    }

    /// Takes a number of at most 32 bits.
    pub fn small(&mut self) -> Result<u32, FieldError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| FieldError::Invalid("a number in a record is too large"))
    }

    /// Takes a number that [`put_signed`] wrote.
    pub fn signed(&mut self) -> Result<i64, FieldError> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Takes nanoseconds: four little-endian bytes, because nanoseconds are rarely small.
    pub fn nanos(&mut self) -> Result<u32, FieldError> {
        let bytes = self.bytes(4)?;
        let nanos = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if nanos < 1_000_000_000 {
            Ok(nanos)
        } else {
            Err(FieldError::Invalid("an entry has an invalid time"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written_and_no_number_is_longer_than_64_bits() {
        for number in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!(ListFields(&out).number(), Ok(number));
            assert_eq!(ListFields(&out[..out.len() - 1]).number(), Err(FieldError::Incomplete));
        }
        for number in [0, 1, -1, 64, -65, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, number);
            assert_eq!(ListFields(&out).signed(), Ok(number));
        }
        for wrong in [
            &[0xff; 10][..],
            &[0xff; 11],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
        ] {
            assert!(matches!(ListFields(wrong).number(), Err(FieldError::Invalid(_))));
        }
        assert!(matches!(ListFields(&[0, 0xca, 0x9a, 0x3b]).nanos(), Err(FieldError::Invalid(_))));
        assert_eq!(ListFields(&[0xff, 0xc9, 0x9a, 0x3b]).nanos(), Ok(999_999_999));
    }
}
