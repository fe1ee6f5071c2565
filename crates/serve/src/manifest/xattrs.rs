//! Extended attributes in a list.

use std::ffi::CString;

use thalweg_tree::install::EntryXattrs;

use super::fields::{FieldError, ListFields, put};

/// Largest size of the attributes of an entry, in bytes.
pub const LONGEST_XATTRS: usize = 1 << 20;
/// Maximum lengths of names and values on Linux (xattr(7)).
const LONGEST_NAME: u64 = 255;
const LONGEST_VALUE: u64 = 64 << 10;

/// Returns `true` if the attributes have at most `most` bytes.
pub fn has_room(xattrs: &EntryXattrs, most: usize) -> bool {
    xattrs.pairs().iter().map(|(name, value)| name.count_bytes() + value.len()).sum::<usize>()
        <= most
}

/// Appends the attributes.
pub fn put_xattrs(out: &mut Vec<u8>, xattrs: &EntryXattrs) {
    put(out, xattrs.pairs().len() as u64);
    for (name, value) in xattrs.pairs() {
        for bytes in [name.as_bytes(), value] {
            put(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Takes attributes that [`put_xattrs`] wrote.
pub fn take_xattrs(fields: &mut ListFields<'_>) -> Result<EntryXattrs, FieldError> {
    let count = fields.number()?;
    let (mut pairs, mut size): (Vec<(CString, Vec<u8>)>, _) = (Vec::new(), 0);
    for _ in 0..count {
        let name = take(fields, LONGEST_NAME)?;
        let value = take(fields, LONGEST_VALUE)?;
        size += name.len() + value.len();
        let name = CString::new(name).unwrap_or_default();
        let is_ascending = pairs.last().is_none_or(|(before, _)| *before < name);
        if name.is_empty() || !is_ascending || size > LONGEST_XATTRS {
            return Err(FieldError::Invalid("an entry has invalid extended attributes"));
        }
        pairs.push((name, value.to_vec()));
    }
    Ok(EntryXattrs::of_pairs(pairs))
}

fn take<'a>(fields: &mut ListFields<'a>, most: u64) -> Result<&'a [u8], FieldError> {
    let length = fields.number()?;
    if length > most {
        return Err(FieldError::Invalid("an extended attribute is too long"));
    }
    fields.bytes(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pairs: &[(&[u8], usize)]) -> Vec<u8> {
        let mut out = vec![pairs.len() as u8];
        for (name, length) in pairs {
            put(&mut out, name.len() as u64);
            out.extend_from_slice(name);
            put(&mut out, *length as u64);
            out.resize(out.len() + length, 7);
        }
        out
    }

    #[test]
    fn names_and_values_have_the_limits_of_linux_and_names_ascend() {
        let take = |pairs: &[(&[u8], usize)]| take_xattrs(&mut ListFields(&written(pairs)));
        let taken = take(&[(b"a", 0), (b"b", 64 << 10)]).unwrap();
        assert_eq!(taken.pairs()[1].1.len(), 64 << 10);
        let long = [b'x'; 256];
        for wrong in [
            &[(&b""[..], 0)][..],
            &[(b"a\0b", 0)],
            &[(b"b", 0), (b"a", 0)],
            &[(b"a", 0), (b"a", 0)],
            &[(&long, 0)],
            &[(b"a", (64 << 10) + 1)],
        ] {
            assert!(matches!(take(wrong), Err(FieldError::Invalid(_))), "{wrong:?}");
        }
        let names: Vec<_> = (0..17).map(|n| [b'a' + n]).collect();
        let many: Vec<_> = names.iter().map(|name| (&name[..], 64 << 10)).collect();
        assert!(take(&many[..15]).is_ok());
        assert!(matches!(take(&many), Err(FieldError::Invalid(_))));
    }
}
