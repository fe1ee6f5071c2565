//! Random changes between the responses of a server: `fetch` returns one whole version, or an error.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use thalweg_core::atomic_file::{Destination, Until};
use thalweg_serve::client::{Connections, FetchFailure, FetchOptions, FetchUrl, Fetched, fetch};

use crate::support::fetch::QuietWatcher;
use crate::support::liar::{LyingServer, ReceivedRequest, send};
use thalweg_testing::{Dice, noise};

/// A version of the file with the headers by which an honest server identifies it.
#[derive(Debug)]
struct ScriptedVersion {
    bytes: Vec<u8>,
    tag: Option<String>,
    modified: Option<String>,
    date: &'static str,
}

const DATE: &str = "Sun, 06 Nov 2022 08:50:37 GMT";
const SAME_MINUTE: &str = "Sun, 06 Nov 2022 08:50:01 GMT";
const CONSTANTS: [&str; 3] = [
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "Thu, 01 Jan 1970 00:00:01 GMT",
    "Tue, 01 Jan 1980 00:00:00 GMT",
];

/// Returns version `number` of the file. Versions have different dates, except in the styles in which real
/// servers may give several versions one date.
fn version(number: u64, len: usize, (style, dice): (u64, &mut Dice)) -> ScriptedVersion {
    let tag = match dice.below(4) {
        _ if style == 3 => Some(format!("\"1-{len:x}\"")),
        0 => None,
        1 => Some(format!("W/\"{}\"", if style == 0 { number } else { 0 })),
        _ if style == 2 => Some(format!("\"{len:x}-0\"")),
        _ => Some(format!("\"v{number}\"")),
    };
    let modified = match style {
        0 | 4 => Some(format!("Sat, {:02} Feb 2020 10:11:12 GMT", number + 1)),
        1 => Some(SAME_MINUTE.to_owned()),
        2 => Some(CONSTANTS[dice.below(3) as usize].to_owned()),
        _ => None,
    };
    ScriptedVersion { bytes: noise(len, number + 1), tag, modified, date: DATE }
}

struct JoinCase {
    versions: Vec<ScriptedVersion>,
    dice: Mutex<Dice>,
    current: AtomicU64,
}

impl JoinCase {
    fn new(seed: u64, is_big: bool) -> Self {
        let mut dice = Dice::seeded(seed);
        let len = if is_big { 2_500_000 } else { 2 + dice.below(5000) as usize };
        let style = dice.below(5);
        let versions = (0..3).map(|number| {
            let len = if dice.below(10) < 7 { len } else { len + number as usize };
            version(number, len, (style, &mut dice))
        });
        let versions = versions.collect();
        Self { versions, dice: Mutex::new(dice), current: AtomicU64::new(0) }
    }

    fn answer(&self, asked: &ReceivedRequest, stream: &mut TcpStream) {
        let (answer, most) = {
            let mut dice = self.dice.lock().unwrap();
            if dice.below(10) < 3 {
                self.current.store(dice.below(3), Ordering::Relaxed);
            }
            let version = &self.versions[self.current.load(Ordering::Relaxed) as usize];
            let answer = respond(version, asked, &mut dice);
            let whole = answer.1.len();
            let ends_early = (dice.below(10) < 5) && answer.0.contains("Content-Length");
            (answer, if ends_early { dice.below(whole as u64 + 1) as usize } else { whole })
        };
        send(stream, &answer, most);
    }

    /// Returns `true` if the file is one whole version.
    fn holds(&self, path: &Path) -> bool {
        let found = fs::read(path).unwrap();
        self.versions.iter().any(|version| version.bytes == found)
    }
}

fn respond(
    version: &ScriptedVersion,
    asked: &ReceivedRequest,
    dice: &mut Dice,
) -> (String, Vec<u8>) {
    let len = version.bytes.len();
    match dice.below(40) {
        0 => return ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned(), Vec::new()),
        1 => {
            let head = format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{len}\r\n");
            return (head + "Content-Length: 0\r\n\r\n", Vec::new());
        }
        _ => {}
    }
    let mut lines = format!("Date: {}\r\n", version.date);
    for (name, value) in [("ETag", &version.tag), ("Last-Modified", &version.modified)] {
        if let Some(value) = value.as_ref().filter(|_| dice.below(10) >= 2) {
            lines.extend([name, ": ", value, "\r\n"]);
        }
    }
    let own = [version.tag.as_deref(), version.modified.as_deref()];
    let holds = |given: &str| !given.starts_with("W/") && own.contains(&Some(given));
    let is_met = (dice.below(10) < 2) || asked.get("if-range").is_none_or(holds);
    let range = asked.range().filter(|(from, _)| is_met && *from < len && dice.below(10) >= 1);
    let (status, from, to) = match range {
        Some((from, to)) => {
            let to = to.unwrap_or(len).min(len);
            // A server may send less than the client requested.
            let to = if dice.below(10) < 2 { from + 1 + (to - from) / 2 } else { to }.min(to);
            let total = if dice.below(10) < 1 { "*".to_owned() } else { len.to_string() };
            let range = format!("bytes {from}-{}/{total}", to - 1);
            lines.extend(["Content-Range: ", &range, "\r\n"]);
            (206, from, to)
        }
        None => (200, 0, len),
    };
    let body = version.bytes[from..to].to_vec();
    if dice.below(10) < 1 {
        let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        return (
            format!("HTTP/1.1 {status} X\r\n{lines}Transfer-Encoding: chunked\r\n\r\n"),
            chunk,
        );
    }
    (format!("HTTP/1.1 {status} X\r\n{lines}Content-Length: {}\r\n\r\n", body.len()), body)
}

fn run(
    case: &Arc<JoinCase>,
    path: &Path,
    options: &FetchOptions,
) -> Vec<Result<Fetched, Box<FetchFailure>>> {
    let own = Arc::clone(case);
    let server = LyingServer::new(move |asked, stream| own.answer(asked, stream));
    let target = FetchUrl::parse(&server.url("x")).unwrap();
    let mut all = Vec::new();
    for _ in 0..4 {
        let destination = Destination::open_until(path, Until::Part).unwrap();
        let ended = fetch(&target, destination, options, &QuietWatcher::default());
        let is_done = ended.is_ok();
        all.push(ended);
        if is_done {
            break;
        }
    }
    all
}

/// Runs one case. Returns two flags: the case produced a file, and that file was resumed.
fn check(seed: u64) -> (bool, bool) {
    let is_big = seed.is_multiple_of(16);
    // Pauses between retries are long, so most cases retry with a new run.
    let retries = if seed % 8 == 1 { 2 } else { 0 };
    let connections = Connections::Exactly(if is_big { 3 } else { 1 });
    let options = FetchOptions { retries, connections, ..crate::support::fetch::options() };
    let (case, place) = (Arc::new(JoinCase::new(seed, is_big)), tempfile::tempdir().unwrap());
    let path = place.path().join("f");
    let ends = run(&case, &path, &options);
    if let Ok(fetched) = ends.last().unwrap() {
        assert!(case.holds(&path), "THALWEG_SEED={seed}: a mixture of {ends:?}");
        (true, fetched.resumed > 0)
    } else {
        assert!(!path.exists(), "THALWEG_SEED={seed}: {ends:?}");
        (false, false)
    }
}

/// `THALWEG_CASES` is the number of cases; `THALWEG_SEED` repeats one case.
#[test]
fn whatever_changes_between_responses_the_file_is_one_whole_version_or_none() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("THALWEG_SEED") {
        check(seed);
        return;
    }
    let cases = number("THALWEG_CASES").unwrap_or(400);
    let (next, done, joined) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let work = || {
            while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < cases)
            {
                let (is_done, is_joined) = check(seed);
                done.fetch_add(u64::from(is_done), Ordering::Relaxed);
                joined.fetch_add(u64::from(is_joined), Ordering::Relaxed);
            }
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let (done, joined) = (done.into_inner(), joined.into_inner());
    eprintln!("{cases} cases: {done} files, {joined} of them resumed");
    // Without enough whole, resumed and failed files, the test would prove nothing.
    assert!(done > cases / 3 && joined > 0 && done < cases);
}
