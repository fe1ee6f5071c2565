//! The rules of ranges and resuming, as a function of what is known and what the server answers.

use std::time::Duration;

use thalweg_tree::journal::{LONGEST_VALIDATOR, Remote};

use super::{
    Error,
    head::{Framing, Head},
};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The range, whose end is open where it is that of the file; `None`: all of it.
    pub range: Option<(u64, Option<u64>)>,
    /// The file of which some is there already.
    pub known: Option<&'a Remote>,
    /// The request named it (If-Range).
    pub is_conditional: bool,
}

/// What the answer is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Its body is the bytes up to `to` of those that were asked for.
    Piece {
        to: u64,
        total: u64,
        /// By what the file is known again; `None`: it cannot be resumed.
        validator: Option<String>,
    },
    /// Its body is the whole file, of this size if that is said.
    Whole(Option<u64>),
    /// What is there is of another file: begin anew.
    Another,
    /// The server does not understand the condition: ask once more without it.
    Unconditional,
    /// Ask once more, for all of it.
    Unranged,
}

/// A date is a strong validator only if the file could not have changed twice within its second
/// (RFC 9110, 8.8.2.2); clocks of servers behind each other differ by more than that.
const SETTLED: Duration = Duration::from_secs(60);

/// By what this file is known again, byte for byte.
pub fn validator(head: &Head) -> Option<String> {
    let etag = head.get("etag").filter(|tag| tag.starts_with('"') && tag.ends_with('"'));
    let date = || {
        let age = head.date("date")?.duration_since(head.date("last-modified")?).ok()?;
        head.get("last-modified").filter(|_| age >= SETTLED)
    };
    let found = etag.filter(|tag| tag.len() > 2).or_else(date)?;
    (found.len() <= LONGEST_VALIDATOR).then(|| found.to_owned())
}

/// What an answer with status 200, 206 or 416 is worth.
pub fn judge(asked: &Asked<'_>, head: &Head) -> Result<Worth, Error> {
    match head.status {
        206 => piece(asked, head),
        200 => whole(asked, head),
        416 if asked.known.is_some() => Ok(Worth::Another),
        416 if asked.range.is_some() => Ok(Worth::Unranged),
        _ => Err(status(head)),
    }
}

/// The answer as an error.
pub fn status(head: &Head) -> Error {
    let (status, reason) = (head.status, head.reason.clone());
    Error::Status { status, reason, after: head.retry_after() }
}

fn piece(asked: &Asked<'_>, head: &Head) -> Result<Worth, Error> {
    let Some((from, to)) = asked.range else {
        return Err(Error::broken("206 to a request for all of it"));
    };
    let range = head.content_range();
    let range = range.ok_or_else(|| Error::broken("206 without a range that makes sense"))?;
    let is_of = |known: &Remote| range.total.is_none_or(|total| total.get() == known.size);
    if asked.known.is_some_and(|known| !is_of(known)) || is_another(asked, head) {
        return Ok(Worth::Another);
    }
    if range.from != from || to.is_some_and(|to| range.to > to) {
        let (begin, end) = (range.from, range.to);
        return Err(Error::broken(format!(
            "bytes {begin} to {end} came, asked for were those from {from}"
        )));
    }
    if let Framing::Length(length) = head.framing()?
        && length != range.to - range.from
    {
        return Err(Error::broken(format!(
            "a range of {} bytes in {length}",
            range.to - range.from
        )));
    }
    let total = range.total.map(std::num::NonZero::get).or(asked.known.map(|known| known.size));
    let validator = asked.known.map(|known| known.validator.clone()).or_else(|| validator(head));
    match total {
        // A part of what could not be put together with the next part.
        Some(total) if validator.is_none() && range.to < total => Ok(Worth::Unranged),
        Some(total) => Ok(Worth::Piece { to: range.to, total, validator }),
        None => Ok(Worth::Unranged),
    }
}

fn whole(asked: &Asked<'_>, head: &Head) -> Result<Worth, Error> {
    let size = match head.framing()? {
        Framing::Length(length) => Some(length),
        _ => None,
    };
    if let Some(known) = asked.known.filter(|_| asked.is_conditional) {
        // Of a server that does not take its own validator there, or the file has changed.
        let is_same = size.is_none_or(|size| size == known.size) && repeats(known, head);
        return Ok(if is_same { Worth::Unconditional } else { Worth::Another });
    }
    Ok(Worth::Whole(size))
}

/// Whether a range is of another file than the known one. A server that was not told which one it has
/// to be must say which one it is.
fn is_another(asked: &Asked<'_>, head: &Head) -> bool {
    let Some(known) = asked.known else { return false };
    let says = head.get(header_of(known)).is_some();
    if says { !repeats(known, head) } else { !asked.is_conditional }
}

fn repeats(known: &Remote, head: &Head) -> bool {
    head.get(header_of(known)) == Some(&known.validator)
}

fn header_of(known: &Remote) -> &'static str {
    if known.validator.starts_with('"') { "etag" } else { "last-modified" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    const LATER: &str = "Date: Sun, 06 Nov 1994 08:50:37 GMT\r\n";
    const AT_ONCE: &str = "Date: Sun, 06 Nov 1994 08:50:36 GMT\r\n";

    fn head(status: u16, lines: &str) -> Head {
        let text = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn known(validator: &str) -> Remote {
        Remote { url: String::new(), validator: validator.to_owned(), size: 10 }
    }

    const FIRST: Asked<'_> = Asked { range: Some((0, None)), known: None, is_conditional: false };

    #[test]
    fn a_validator_is_a_strong_tag_or_a_date_that_has_settled() {
        let of = |lines: &str| validator(&head(206, lines));
        assert_eq!(of("ETag: \"a\"\r\n").as_deref(), Some("\"a\""));
        assert_eq!(of("ETag: W/\"a\"\r\n"), None);
        assert_eq!(of("ETag: \"\"\r\n"), None);
        assert_eq!(of(&format!("ETag: \"{}\"\r\n", "a".repeat(300))), None);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(of(&format!("ETag: W/\"a\"\r\n{LONG_AGO}{LATER}")).as_deref(), Some(date));
        assert_eq!(of(&format!("{LONG_AGO}{AT_ONCE}")), None);
        assert_eq!(of(LONG_AGO), None);
    }

    #[test]
    fn the_first_answer_says_whether_it_can_be_resumed() {
        let judge = |status, lines: &str| judge(&FIRST, &head(status, lines));
        let piece = |to, validator: Option<&str>| Worth::Piece {
            to,
            total: 10,
            validator: validator.map(str::to_owned),
        };
        let all = "Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n";
        assert_eq!(judge(206, &format!("{all}ETag: \"a\"\r\n")).unwrap(), piece(10, Some("\"a\"")));
        assert_eq!(judge(206, all).unwrap(), piece(10, None));
        let some = "Content-Range: bytes 0-4/10\r\nContent-Length: 5\r\n";
        assert_eq!(judge(206, &format!("{some}ETag: \"a\"\r\n")).unwrap(), piece(5, Some("\"a\"")));
        assert_eq!(judge(206, some).unwrap(), Worth::Unranged);
        assert_eq!(
            judge(206, "Content-Range: bytes 0-9/*\r\nETag: \"a\"\r\n").unwrap(),
            Worth::Unranged
        );
        assert_eq!(judge(200, "Content-Length: 10\r\n").unwrap(), Worth::Whole(Some(10)));
        assert_eq!(judge(200, "").unwrap(), Worth::Whole(None));
        assert_eq!(judge(416, "Content-Range: bytes */0\r\n").unwrap(), Worth::Unranged);
        for (status, wrong) in [
            (206, "Content-Range: bytes 1-9/10\r\n"),
            (206, "Content-Range: bytes 0-9/10\r\nContent-Length: 11\r\n"),
            (206, ""),
            (404, ""),
            (204, ""),
        ] {
            assert!(judge(status, wrong).is_err(), "{status} {wrong}");
        }
    }

    #[test]
    fn going_on_wants_the_same_file_and_the_range_that_was_asked_for() {
        let known = known("\"a\"");
        let asked =
            |is_conditional| Asked { range: Some((4, None)), known: Some(&known), is_conditional };
        let range = "Content-Range: bytes 4-9/10\r\n";
        let on = Worth::Piece { to: 10, total: 10, validator: Some("\"a\"".to_owned()) };
        let same = head(206, &format!("{range}ETag: \"a\"\r\n"));
        assert_eq!(judge(&asked(true), &same).unwrap(), on);
        assert_eq!(judge(&asked(false), &same).unwrap(), on);
        // Told which file it has to be, a server may be silent; else it has to say.
        assert_eq!(judge(&asked(true), &head(206, range)).unwrap(), on);
        assert_eq!(judge(&asked(false), &head(206, range)).unwrap(), Worth::Another);
        for another in [
            format!("{range}ETag: \"b\"\r\n"),
            format!("{range}ETag: W/\"a\"\r\n"),
            "Content-Range: bytes 4-10/11\r\nETag: \"a\"\r\n".to_owned(),
        ] {
            assert_eq!(
                judge(&asked(true), &head(206, &another)).unwrap(),
                Worth::Another,
                "{another}"
            );
        }
        assert!(judge(&asked(true), &head(206, "Content-Range: bytes 0-9/10\r\n")).is_err());
        assert_eq!(judge(&asked(true), &head(416, "")).unwrap(), Worth::Another);
    }

    #[test]
    fn a_whole_file_instead_of_a_range_is_a_change_or_a_condition_not_understood() {
        let known = known("\"a\"");
        let asked =
            |is_conditional| Asked { range: Some((4, None)), known: Some(&known), is_conditional };
        let same = head(200, "Content-Length: 10\r\nETag: \"a\"\r\n");
        assert_eq!(judge(&asked(true), &same).unwrap(), Worth::Unconditional);
        assert_eq!(judge(&asked(false), &same).unwrap(), Worth::Whole(Some(10)));
        for changed in
            ["Content-Length: 11\r\nETag: \"a\"\r\n", "ETag: \"b\"\r\n", "Content-Length: 10\r\n"]
        {
            assert_eq!(
                judge(&asked(true), &head(200, changed)).unwrap(),
                Worth::Another,
                "{changed}"
            );
        }
    }
}
