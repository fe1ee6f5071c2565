//! The text form of a choice of kernels: `avx2`, or by size `4096=avx2,24576=avx512,rep-movsb`.
//!
//! Each name serves the sizes up to and including its number. A name without a number must be the last one, and serves
//! all larger sizes. The C library serves sizes that no name covers. A choice can also contain the name of the C
//! library, `libc`.

use core::iter::once;

/// The name of the C library's functions in a choice.
pub const LIBC: &str = "libc";
/// Maximum number of parts in a choice.
pub const MOST: usize = 16;

/// The part of a choice that serves sizes up to and including `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoicePart<'t> {
    /// Largest size, in bytes.
    pub upto: usize,
    /// The kernel's name as bytes, because it comes from the environment.
    pub name: &'t [u8],
}

/// Returns the parts of a choice in ascending order, up to the largest size. Returns `None` if the text is invalid.
pub fn parts(text: &[u8]) -> Option<impl Iterator<Item = ChoicePart<'_>>> {
    let split = || text.split(|byte| *byte == b',');
    let mut before: Option<usize> = None;
    let mut count = 0;
    for word in split() {
        let part = part(word)?;
        if part.name.is_empty() || before.is_some_and(|before| part.upto <= before) {
            return None;
        }
        before = Some(part.upto);
        count += 1;
    }
    if count >= MOST {
        return None;
    }
    let rest = ChoicePart { upto: usize::MAX, name: LIBC.as_bytes() };
    let rest = once(rest).filter(move |_| before != Some(usize::MAX));
    Some(split().filter_map(part).chain(rest))
}

fn part(word: &[u8]) -> Option<ChoicePart<'_>> {
    let Some(equals) = word.iter().position(|byte| *byte == b'=') else {
        return Some(ChoicePart { upto: usize::MAX, name: word });
    };
    let (number, name) = word.split_at_checked(equals)?;
    let mut upto = if number.is_empty() { None } else { Some(0_usize) };
    for digit in number {
        let digit = char::from(*digit).to_digit(10)?;
        upto = upto?.checked_mul(10)?.checked_add(digit as usize);
    }
    Some(ChoicePart { upto: upto?, name: name.get(1..)? })
}

/// Returns `true` if both slices are equal. The operator `==` would call memcmp, which the object must not do.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(usize, String)>> {
        let owned = |p: ChoicePart<'_>| (p.upto, String::from_utf8_lossy(p.name).into_owned());
        Some(parts(text.as_bytes())?.map(owned).collect())
    }

    #[test]
    fn one_name_serves_every_size_and_the_rest_is_libc() {
        assert_eq!(read("avx2").unwrap(), [(usize::MAX, "avx2".to_owned())]);
        let bands = read("16=mask256,4096=avx2").unwrap();
        let libc = (usize::MAX, "libc".to_owned());
        assert_eq!(bands, [(16, "mask256".to_owned()), (4096, "avx2".to_owned()), libc]);
        assert_eq!(read("1=libc,simple").unwrap().len(), 2);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            ",",
            "avx2,",
            "=avx2",
            "4=",
            "x=avx2",
            "-1=avx2",
            "avx2,sse2",
            "8=avx2,8=sse2",
            "8=avx2,4=sse2",
            "99999999999999999999=avx2",
            "1=a,2=a,3=a,4=a,5=a,6=a,7=a,8=a,9=a,10=a,11=a,12=a,13=a,14=a,15=a,16=a",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_are_compared_one_by_one() {
        assert!(same(b"avx2", b"avx2") && !same(b"avx2", b"avx") && !same(b"avx2", b"avx5"));
    }
}
