//! Decides whether two responses are parts of one file (RFC 9110, 8.8, 13.1.5, 14.4 and 15.3.7.3).
//! `docs/reference/fetch.md` describes the model.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_tree::journal::{LONGEST_VALIDATOR, Remote};

use super::head::ResponseHead;

/// Validators of the response that sent the first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Strong ETag with its quotes, or a strong date.
    pub strong: String,
    /// Weak ETag, in addition to a strong date. An equal tag proves nothing; a different tag proves another version.
    pub weak: Option<String>,
}

/// Result of comparing a response with the file of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// Both carry the same strong validator.
    Same,
    /// The response does not carry the validator, or the validator may be constant for all versions.
    Unproven,
    /// A validator differs.
    Different,
}

/// `Last-Modified` counts as strong only if it is at least this much older than `Date` (RFC 9110, 8.8.2.2). A second
/// change within the same second is then impossible. The margin covers clock differences.
const SETTLED: Duration = Duration::from_secs(60);
/// 1990-01-01. Older dates are constants that archives and reproducible builds set.
const FIRST_CREDIBLE: Duration = Duration::from_secs(631_152_000);
/// Constants of reproducible builds in seconds: 0 (ostree), 1 (Nix, Guix), 1980-01-01 (zip).
const CONSTANTS: [u128; 3] = [0, 1, 315_532_800];

/// Returns the validators by which later responses can be joined to this one.
///
/// `is_vouched`: `true` if a digest of the whole file is compared at the end, so that constant dates may be used.
pub fn validators(head: &ResponseHead, size: Option<u64>, is_vouched: bool) -> Option<Validators> {
    let tag = head.get("etag");
    let date = || head.get("last-modified").filter(|_| is_date_strong(head));
    let strong = tag.filter(|tag| is_strong(tag)).or_else(date)?;
    if strong.len() > LONGEST_VALIDATOR || !is_vouched && is_constant(strong, head, size) {
        return None;
    }
    let weak = tag.filter(|tag| *tag != strong && tag.len() <= LONGEST_VALIDATOR);
    Some(Validators { strong: strong.to_owned(), weak: weak.map(str::to_owned) })
}

/// Compares a response with the file that was partly received earlier. Resuming, reconnecting and additional
/// connections all use this decision.
pub fn compare(first: &Remote, next: &ResponseHead, is_vouched: bool) -> Sameness {
    let is_tag = first.validator.starts_with('"');
    let said = next.get(if is_tag { "etag" } else { "last-modified" });
    let weak = next.get("etag").filter(|_| !is_tag).zip(first.weak.as_deref());
    if said.is_some_and(|said| said != first.validator) || weak.is_some_and(|(own, was)| own != was)
    {
        return Sameness::Different;
    }
    let is_proof = is_vouched || !is_constant(&first.validator, next, Some(first.size));
    if said.is_some() && is_proof { Sameness::Same } else { Sameness::Unproven }
}

fn is_strong(tag: &str) -> bool {
    tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"')
}

fn is_date_strong(head: &ResponseHead) -> bool {
    let modified = head.date("last-modified");
    let age = head.date("date").zip(modified).map(|(date, then)| date.duration_since(then));
    age.is_some_and(|age| age.is_ok_and(|age| age >= SETTLED))
}

/// Returns `true` if a validator is, or may be derived from, a date that is equal for every version of a file.
fn is_constant(validator: &str, head: &ResponseHead, size: Option<u64>) -> bool {
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    if !validator.starts_with('"') {
        return date(validator).is_some_and(is_constant_date);
    }
    let words: Vec<&str> =
        validator.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    if words.iter().any(|word| is_recent_time(word)) {
        return false;
    }
    // The tag may be a hash of date and size, which cannot be distinguished from a hash of the contents.
    head.get("last-modified").and_then(date).is_some_and(is_constant_date)
        || size.is_some_and(|size| is_of_constant(&words, size))
}

/// Returns `true` for a date before 1990, or the first second of a year.
fn is_constant_date(date: SystemTime) -> bool {
    let text = httpdate::fmt_http_date(date);
    date < UNIX_EPOCH + FIRST_CREDIBLE || text.contains(", 01 Jan") && text.contains(" 00:00:00 ")
}

/// Returns `true` for tags such as nginx's `"MTIME-SIZE"` and Apache's `"SIZE-MTIME"` with a constant time.
fn is_of_constant(words: &[&str], size: u64) -> bool {
    let is_constant = |number: u128| {
        let units = [1, 1_000, 1_000_000, 1_000_000_000];
        units.iter().any(|unit| CONSTANTS.iter().any(|seconds| seconds * unit == number))
    };
    let is = |at: usize, wanted: &dyn Fn(u128) -> bool| readings(words[at]).any(wanted);
    let all = 0..words.len();
    all.clone()
        .filter(|at| is(*at, &|number| number == u128::from(size)))
        .any(|of_size| all.clone().any(|at| at != of_size && is(at, &is_constant)))
}

/// Returns `true` if a word of a tag is a time since 1990 in micro- or nanoseconds. Such a tag is not derived from a
/// constant date alone: `thalweg serve` adds the time of change, which builds cannot set.
fn is_recent_time(word: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let credible = FIRST_CREDIBLE.as_nanos()..now + Duration::from_secs(86_400).as_nanos();
    u128::from_str_radix(word, 16).is_ok_and(|number| {
        credible.contains(&number) || credible.contains(&number.saturating_mul(1000))
    })
}

/// Returns the numbers that a word can represent: hexadecimal and decimal.
fn readings(word: &str) -> impl Iterator<Item = u128> {
    [u128::from_str_radix(word, 16), word.parse()].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Date: Sun, 06 Nov 2022 08:50:37 GMT\r\n";

    fn head(lines: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 206 X\r\n{lines}\r\n");
        ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn strong(lines: &str) -> Option<String> {
        Some(validators(&head(lines), Some(300_000), false)?.strong)
    }

    fn known(lines: &str) -> Remote {
        let Validators { strong, weak } = validators(&head(lines), Some(9), true).unwrap();
        Remote { url: String::new(), validator: strong, weak, size: 9 }
    }

    #[test]
    fn a_validator_is_a_strong_tag_or_a_date_that_has_settled() {
        let modified = format!("Last-Modified: {DATE}\r\n");
        assert_eq!(strong("ETag: \"a\"\r\n").as_deref(), Some("\"a\""));
        assert_eq!(strong("ETag: W/\"a\"\r\n"), None);
        assert_eq!(strong("ETag: \"\"\r\n"), None);
        assert_eq!(strong(&format!("ETag: \"{}\"\r\n", "a".repeat(300))), None);
        let both = validators(&head(&format!("ETag: W/\"a\"\r\n{modified}{LATER}")), None, false);
        assert_eq!(both, Some(Validators { strong: DATE.into(), weak: Some("W/\"a\"".into()) }));
        assert_eq!(strong(&format!("{modified}Date: Sun, 06 Nov 1994 08:50:36 GMT\r\n")), None);
        assert_eq!(strong(&modified), None);
    }

    #[test]
    fn constant_dates_and_tags_made_of_them_identify_nothing_without_a_digest() {
        for date in [
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "Thu, 01 Jan 1970 00:00:01 GMT",
            "Tue, 01 Jan 1980 00:00:00 GMT",
            "Fri, 01 Feb 1980 00:00:00 GMT",
            "Sat, 26 Oct 1985 08:15:00 GMT",
            "Fri, 01 Jan 2010 00:00:00 GMT",
        ] {
            let date = format!("Last-Modified: {date}\r\n{LATER}");
            assert_eq!(strong(&date), None, "{date}");
            assert_eq!(strong(&format!("ETag: \"0123456789abcdef\"\r\n{date}")), None, "{date}");
            assert!(validators(&head(&date), None, true).is_some());
            // `thalweg serve` includes the time of change in its tags.
            let own = format!("ETag: \"1f-493e0-0-18a0b1c2d3e4f567\"\r\n{date}");
            assert!(strong(&own).is_some(), "{own}");
        }
        let constant = [
            "1-493e0",
            "0-493e0",
            "12cea600-493e0",
            "493e0-f4240",
            "300000-315532800",
            "7-493e0-0",
        ];
        for tag in constant {
            assert_eq!(strong(&format!("ETag: \"{tag}\"\r\n")), None, "{tag}");
        }
        for tag in ["1", "0", "1-493e1", "65f0a1b2-493e0", "493e0-5f3a1b2c3d4e5", "493e0"] {
            assert!(strong(&format!("ETag: \"{tag}\"\r\n")).is_some(), "{tag}");
        }
    }

    #[test]
    fn responses_are_joined_only_by_a_strong_validator_that_both_carry() {
        use Sameness::{Different, Same, Unproven};
        let modified = format!("Last-Modified: {DATE}\r\n");
        let dated = format!("{modified}{LATER}");
        let weak = format!("ETag: W/\"a\"\r\n{dated}");
        for (first, next, expected) in [
            ("ETag: \"a\"\r\n", "ETag: \"a\"\r\n", Same),
            ("ETag: \"a\"\r\n", "", Unproven),
            ("ETag: \"a\"\r\n", &*modified, Unproven),
            ("ETag: \"a\"\r\n", "ETag: \"b\"\r\n", Different),
            ("ETag: \"a\"\r\n", "ETag: W/\"a\"\r\n", Different),
            (&dated, &modified, Same),
            (&dated, "", Unproven),
            (&dated, "ETag: \"a\"\r\n", Unproven),
            (&dated, "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT\r\n", Different),
            (&weak, &weak, Same),
            (&weak, &modified, Same),
            (&weak, &weak.replace("\"a\"", "\"b\""), Different),
            ("ETag: \"1-9\"\r\n", "ETag: \"1-9\"\r\n", Unproven),
        ] {
            assert_eq!(compare(&known(first), &head(next), false), expected, "{first}{next}");
        }
        let first = known("ETag: \"1-9\"\r\n");
        assert_eq!(compare(&first, &head("ETag: \"1-9\"\r\n"), true), Same);
    }
}
