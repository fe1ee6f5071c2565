//! Byte ranges of a request (RFC 9110, 14).

/// Maximum number of ranges in one request. A request with more ranges gets the whole file.
pub const MOST_RANGES: usize = 32;

/// A byte range of a file: from `from` up to, but not including, `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub from: u64,
    pub to: u64,
}

impl ByteRange {
    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        self.to - self.from
    }

    /// Returns `true` if the range is empty.
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }
}

/// Meaning of a `Range` header for a file of a given size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedRanges {
    /// Send the whole file: the header requests nothing that this server sends as ranges.
    Whole,
    /// At least one range. No range is empty and none overlaps another. They are in the requested order unless some
    /// were merged.
    Parts(Vec<ByteRange>),
    /// No requested range lies within the file: 416.
    Nothing,
}

/// Parses a `Range` header. An invalid header is ignored.
pub fn wanted(header: &str, size: u64) -> WantedRanges {
    let Some(list) = after_unit(header) else { return WantedRanges::Whole };
    let specs: Vec<&str> = list.split(',').map(trimmed).filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() || specs.len() > MOST_RANGES {
        return WantedRanges::Whole;
    }
    let mut parts = Vec::new();
    for spec in specs {
        match stretch(spec, size) {
            Err(NoRange) => return WantedRanges::Whole,
            // An empty range of an empty file: `Content-Range` cannot express it.
            Ok(Some(part)) if part.is_empty() => return WantedRanges::Whole,
            Ok(part) => parts.extend(part),
        }
    }
    merge(&mut parts);
    if parts.is_empty() { WantedRanges::Nothing } else { WantedRanges::Parts(parts) }
}

fn after_unit(header: &str) -> Option<&str> {
    let (unit, list) = header.split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then_some(list)
}

fn trimmed(spec: &str) -> &str {
    spec.trim_matches([' ', '\t'])
}

/// Error: an entry of the list is not a range, which invalidates the whole list.
struct NoRange;

/// Parses one range of the list. Returns `None` if it lies beyond the end of the file.
fn stretch(spec: &str, size: u64) -> Result<Option<ByteRange>, NoRange> {
    let (first, last) = spec.split_once('-').ok_or(NoRange)?;
    if first.is_empty() {
        let count = number(last)?;
        let tail = ByteRange { from: size.saturating_sub(count), to: size };
        return Ok((count > 0).then_some(tail));
    }
    let from = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < from {
        return Err(NoRange);
    }
    Ok((from < size).then(|| ByteRange { from, to: last.saturating_add(1).min(size) }))
}

/// Parses a decimal number. A number above `u64::MAX` counts as `u64::MAX`.
fn number(digits: &str) -> Result<u64, NoRange> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Ok(digits.parse().unwrap_or(u64::MAX)) } else { Err(NoRange) }
}

/// Merges overlapping ranges: a short request must not cause the same bytes to be sent many times.
fn merge(parts: &mut Vec<ByteRange>) {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.from);
    if sorted.windows(2).all(|pair| pair[0].to <= pair[1].from) {
        return;
    }
    sorted.dedup_by(|later, part| {
        let overlap = later.from <= part.to;
        if overlap {
            part.to = part.to.max(later.to);
        }
        overlap
    });
    *parts = sorted;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(of: &[(u64, u64)]) -> WantedRanges {
        WantedRanges::Parts(
            of.iter().map(|(from, to)| ByteRange { from: *from, to: *to }).collect(),
        )
    }

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        let cases = [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-", parts(&[(0, 10)])),
            ("Bytes=3-99999999999999999999", parts(&[(3, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-99", parts(&[(0, 10)])),
            ("bytes= 5-6 ,\t, 1-2,", parts(&[(5, 7), (1, 3)])),
            ("bytes=5-6,1-2,6-8", parts(&[(1, 3), (5, 9)])),
            ("bytes=0-2,20-30", parts(&[(0, 3)])),
            ("bytes=10-", WantedRanges::Nothing),
            ("bytes=-0", WantedRanges::Nothing),
            ("bytes=99999999999999999999-", WantedRanges::Nothing),
            ("bytes=3-2", WantedRanges::Whole),
            ("bytes=", WantedRanges::Whole),
            ("bytes=a-b", WantedRanges::Whole),
            ("bytes=1-2,x", WantedRanges::Whole),
            ("bytes=+1-2", WantedRanges::Whole),
            ("bytes=1", WantedRanges::Whole),
            ("bytes=-", WantedRanges::Whole),
            ("lines=1-2", WantedRanges::Whole),
            ("bytes", WantedRanges::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(wanted(header, 10), expected, "{header}");
        }
        let many = format!("bytes={}", vec!["0-1"; MOST_RANGES + 1].join(","));
        assert_eq!(wanted(&many, 10), WantedRanges::Whole);
        assert_eq!(wanted("bytes=-5", 0), WantedRanges::Whole);
        assert_eq!(wanted("bytes=0-", 0), WantedRanges::Nothing);
    }

    proptest! {
        #[test]
        fn parts_hold_the_bytes_asked_for_and_each_once(
            size in 1..64_u64,
            asked in prop::collection::vec((0..80_u64, prop::option::of(0..80_u64)), 1..8),
        ) {
            let spec = |(first, last): &(u64, Option<u64>)| {
                format!("{first}-{}", last.map(|more| (first + more).to_string()).unwrap_or_default())
            };
            let header = format!("bytes={}", asked.iter().map(spec).collect::<Vec<_>>().join(","));
            let is_asked = |at: u64| asked.iter().any(|(first, more)| {
                *first <= at && more.is_none_or(|more| at <= first + more)
            });
            let parts = match wanted(&header, size) {
                WantedRanges::Parts(parts) => parts,
                WantedRanges::Nothing => Vec::new(),
                WantedRanges::Whole => panic!("{header}"),
            };
            for at in 0..size {
                let held = parts.iter().filter(|part| part.from <= at && at < part.to).count();
                prop_assert_eq!(held, usize::from(is_asked(at)), "{} of {}", at, header);
            }
        }

        #[test]
        fn no_header_makes_a_part_that_is_not_there(header in "bytes=[0-9, -]{0,40}", size in 0..50_u64) {
            if let WantedRanges::Parts(parts) = wanted(&header, size) {
                prop_assert!(parts.len() <= MOST_RANGES);
                prop_assert!(parts.iter().all(|part| part.from < part.to && part.to <= size));
            }
        }
    }
}
