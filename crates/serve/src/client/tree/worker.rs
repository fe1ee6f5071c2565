//! One connection of a tree's fetch: asks for several files before the first has come, and takes them as they
//! come. A file that is large is fetched by itself, so that it can be gone on with.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use thalweg_core::{Cancelled, End, Report, driver::Pace, quantity};

use super::{
    account::Account,
    entry::{Entry, Kind, Said, parse},
    files::{Manner, Wanted, destination},
    folders::Folders,
    list::Lines,
};
use crate::{
    client::{
        Error, Options, Progress, Target, Watcher,
        body::{Body, book},
        connect::Connection,
        fetch::{Listed, fetch_listed},
        head::{Framing, Head},
        patience::Patience,
        request,
        resume::{self, Asked},
        retry,
    },
    manifest::encoded,
};

/// What all connections share.
pub struct Job<'a> {
    pub base: &'a Target,
    pub is_own: bool,
    pub options: &'a Options,
    pub manner: Manner,
    pub root: BorrowedFd<'a>,
    pub lines: Mutex<Lines<'a>>,
    pub account: &'a Account<'a>,
}

/// Of files up to here a kill loses what had come of them; larger ones have a journal, and a request of
/// their own.
pub const LARGE: u64 = 16 << 20;
/// Lines taken from the list at a time, all of one folder: two that make files in one folder wait for each other.
const SOME: usize = 128;
/// Files asked for and not there yet.
const MOST_ASKED: usize = 64;
/// Bytes of requests under way: what two sockets hold even if their other ends do not read. A client that
/// waits to ask and a server that waits to answer would wait for ever.
const MOST_REQUESTED: usize = 16 << 10;

/// One of the connections.
pub struct Worker<'a> {
    job: &'a Job<'a>,
    folders: Folders<'a>,
    connection: Option<Connection>,
    /// A file has come on it: a server may end a connection after so many.
    has_served: bool,
    /// The request for a file, before and behind its path.
    request: (String, String),
    /// In the order in which they are asked for.
    wanted: VecDeque<Wanted>,
    /// How many of them are asked for on this connection, and in how many bytes.
    asked: VecDeque<usize>,
    large: Vec<Wanted>,
    is_over: bool,
    report: Report,
    resumed: u64,
}

impl<'a> Worker<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        let all = Asked { range: None, known: None, is_conditional: false };
        let text = request::text(
            job.base,
            &all,
            &job.options.extra,
            (job.is_own, job.options.proxies.of(job.base)),
        );
        let (before, behind) = text.split_once(" HTTP/1.1").unwrap_or((&text, ""));
        Self {
            job,
            folders: Folders::below(job.root),
            connection: None,
            has_served: false,
            request: (before.to_owned(), format!(" HTTP/1.1{behind}")),
            wanted: VecDeque::new(),
            asked: VecDeque::new(),
            large: Vec::new(),
            is_over: false,
            report: Report::default(),
            resumed: 0,
        }
    }

    /// Works until the list has no more, or all has to stop.
    pub fn work(mut self) {
        let account = self.job.account;
        if let Err(error) = self.work_until_all_is_there()
            && !matches!(error, Error::Cancelled if account.is_halting())
        {
            account.halt(error);
        }
        account.book(self.report, self.resumed);
    }

    fn work_until_all_is_there(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            self.job.account.go_on()?;
            while !self.is_over && self.wanted.len() < MOST_ASKED / 2 && self.large.is_empty() {
                self.take_some()?;
            }
            let Some(first) = self.wanted.front() else {
                match self.large.pop() {
                    Some(large) => self.bring_large(&large),
                    None => return Ok(()),
                }
                continue;
            };
            let size = first.size;
            match self.bring_first() {
                Ok(()) => tries = 0,
                Err(Error::Network { .. } | Error::Short { .. }) if self.has_served => {
                    self.forget_connection();
                }
                Err(error) if error.is_passing() => {
                    self.forget_connection();
                    tries += 1;
                    let pause = retry::pause(tries, self.job.options.retries, error.after());
                    self.wait_after(error, pause)?;
                }
                Err(error) => {
                    self.forget_connection();
                    let Some(wanted) = self.wanted.pop_front() else { return Err(error) };
                    debug_assert_eq!(wanted.size, size);
                    self.job.account.missed(&wanted.path, error);
                }
            }
        }
    }

    fn wait_after(&self, error: Error, pause: Option<Duration>) -> Result<(), Error> {
        let Some(pause) = pause else { return Err(error) };
        let account = self.job.account;
        account.tell(&format!("{error}; again in {}", quantity::duration(pause)));
        let look = || account.go_on();
        Ok(Patience { most: pause, look: &look }.sleep(pause)?)
    }

    /// What was asked for and has not come is asked for again.
    fn forget_connection(&mut self) {
        self.connection = None;
        self.has_served = false;
        self.asked.clear();
    }

    /// Takes the next lines of the list, makes their links, and notes the files that have to come.
    fn take_some(&mut self) -> Result<(), Error> {
        let mut text = Vec::new();
        {
            let mut lines = self.job.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let mut folder: Option<Vec<u8>> = None;
            for _ in 0..SOME {
                let Some(line) = lines.next_line()? else {
                    self.is_over = true;
                    break;
                };
                let own = folder_of(line);
                if folder.as_ref().is_some_and(|folder| folder != own) {
                    lines.unread();
                    break;
                }
                folder.get_or_insert_with(|| own.to_vec());
                text.extend_from_slice(line);
                text.push(b'\n');
            }
        }
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if let Ok(Said::Entry(entry)) = parse(line)
                && !entry.is_reserved()
                && let Err(error) = self.take(&entry)
            {
                self.job.account.missed(&entry.path, error);
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: &Entry) -> Result<(), Error> {
        let (job, account) = (self.job, self.job.account);
        match &entry.kind {
            Kind::Folder => {}
            Kind::Link(target) => {
                let folder = self.folders.open(entry.folder())?;
                if job.manner.link(entry, target, &folder)? {
                    account.links.fetch_add(1, Ordering::Relaxed);
                }
            }
            Kind::File { size, etag } => {
                let folder = self.folders.open(entry.folder())?;
                match job.manner.wanted(entry, (*size, etag), folder)? {
                    None => account.settled(*size, false),
                    Some(wanted) if *size > LARGE => self.large.push(wanted),
                    Some(wanted) => self.wanted.push_back(wanted),
                }
            }
        }
        Ok(())
    }

    /// Asks for what is not asked for yet, and takes the first answer.
    fn bring_first(&mut self) -> Result<(), Error> {
        let (job, account) = (self.job, self.job.account);
        let look = || account.go_on();
        let patience = Patience { most: job.options.patience, look: &look };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                Connection::open(job.base, (&job.options.trust, &job.options.proxies), &patience)?
            }
        };
        self.ask(&mut connection, &patience)?;
        let head = connection.head(&patience)?;
        let Some(wanted) = self.wanted.front() else { return Ok(()) };
        if head.status != 200 {
            // What else its body is, it is not the file; those behind it are asked for again.
            return Err(match resume::status(&head) {
                Error::Status { status: 404 | 410, .. } => {
                    Error::OutOfDate("it is gone".to_owned())
                }
                error => error,
            });
        }
        check(&head, wanted)?;
        bring(&mut connection, wanted, job, patience, &mut self.report)?;
        account.settled(wanted.size, true);
        self.wanted.pop_front();
        self.asked.pop_front();
        if head.keeps_alive() {
            self.has_served = true;
            self.connection = Some(connection);
        } else {
            self.forget_connection();
        }
        Ok(())
    }

    fn ask(&mut self, connection: &mut Connection, patience: &Patience<'_>) -> Result<(), Error> {
        let mut text = Vec::new();
        let mut under_way: usize = self.asked.iter().sum();
        for wanted in self.wanted.iter().skip(self.asked.len()) {
            let path = encoded(Path::new(OsStr::from_bytes(&wanted.path)));
            let length = self.request.0.len() + path.len() + self.request.1.len();
            if under_way > 0 && under_way + length > MOST_REQUESTED {
                break;
            }
            for part in [&self.request.0, &path, &self.request.1] {
                text.extend_from_slice(part.as_bytes());
            }
            under_way += length;
            self.asked.push_back(length);
        }
        connection.send(&text, patience)
    }

    /// Fetches a file by itself, with a journal.
    fn bring_large(&mut self, wanted: &Wanted) {
        let (job, account) = (self.job, self.job.account);
        let destination = match destination(wanted) {
            Ok(destination) => destination,
            Err(error) => return account.missed(&wanted.path, error),
        };
        let path = encoded(Path::new(OsStr::from_bytes(&wanted.path)));
        let listed =
            Listed { size: wanted.size, etag: &wanted.etag, attributes: &wanted.attributes };
        let watcher = One { account, before: Mutex::new(None) };
        let target = job.base.below(&path);
        match fetch_listed(&target, destination, job.options, &watcher, Some(&listed)) {
            Ok(fetched) => {
                account.settled(wanted.size, true);
                self.resumed += fetched.resumed;
                book(&mut self.report, fetched.report);
            }
            Err(failed) => {
                book(&mut self.report, failed.report);
                account.missed(&wanted.path, failed.error);
            }
        }
    }
}

/// The folder of the path in a line, as it is written there; it is only compared.
fn folder_of(line: &[u8]) -> &[u8] {
    const KEY: &[u8] = b"\"path\":\"";
    let begin = line.windows(KEY.len()).position(|window| window == KEY);
    let path = begin.map_or(&b""[..], |begin| &line[begin + KEY.len()..]);
    let path = path.split(|byte| *byte == b'"').next().unwrap_or_default();
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Whether an answer is the file that the list speaks of.
fn check(head: &Head, wanted: &Wanted) -> Result<(), Error> {
    if let Some(encoding) = head.get("content-encoding") {
        return Err(Error::broken(format!("it comes encoded as {encoding}")));
    }
    let size = match head.framing()? {
        Framing::Length(size) => Some(size),
        _ => None,
    };
    Listed::check(head, size, (wanted.size, &wanted.etag))
}

/// The body of an answer, and its file's name.
fn bring(
    connection: &mut Connection,
    wanted: &Wanted,
    job: &Job<'_>,
    patience: Patience<'_>,
    report: &mut Report,
) -> Result<(), Error> {
    let (account, way) = (job.account, &job.options.way);
    let sink = job.manner.open(wanted)?;
    // It was made a moment ago: the kernel need not be asked what it is.
    let end = End { fd: sink.fd(), kind: thalweg_core::Kind::File, at: Some(0) };
    let mut before = 0;
    let mut note = |moved: u64| -> Result<(), Cancelled> {
        account.moved(moved - before)?;
        before = moved;
        Ok(())
    };
    // What one call reads is written by one call.
    connection.gather(wanted.size, &patience)?;
    let pace = Pace::new(way.limit, Duration::ZERO);
    let body = Body { connection, patience, way, end, pace, note: &mut note, report };
    body.bring(Framing::Length(wanted.size), Some(wanted.size))?;
    sink.publish(&wanted.attributes, job.manner)
}

/// Watches one file of many.
struct One<'a> {
    account: &'a Account<'a>,
    /// What was there of it, as last told.
    before: Mutex<Option<u64>>,
}

impl Watcher for One<'_> {
    fn progress(&self, now: Progress) -> Result<(), Cancelled> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let more = now.there.saturating_sub(before.unwrap_or(now.resumed));
        *before = Some(now.there);
        self.account.moved(more)
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        self.account.go_on()
    }

    fn tell(&self, news: &str) {
        self.account.tell(news);
    }
}
