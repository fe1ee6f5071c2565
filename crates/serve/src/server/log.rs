//! What is told of every answer: a line, written by a thread of its own, so that a slow terminal holds up no
//! worker. Lines that find the queue full are counted and left out.

use std::{
    fmt, io,
    io::Write,
    net::SocketAddr,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use thalweg_core::shown;

mod quoted;
use quoted::quoted;

/// Where lines go, and what they look like.
pub struct Log {
    /// How they are written.
    pub format: Format,
    /// Gets each line in one write.
    pub out: Box<dyn Write + Send>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("format", &self.format).finish_non_exhaustive()
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// One answer.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// When it ended, as headers say it.
    pub time: String,
    /// Who asked; none at a unix socket.
    pub client: Option<SocketAddr>,
    /// The request line; empty if there was none.
    pub request: String,
    /// What was answered.
    pub status: u16,
    /// Bytes that were sent, the head's among them.
    pub bytes: u64,
    /// From the whole request to the end of the answer.
    pub seconds: f64,
    /// What moved most of it, where it did not fit one send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<&'static str>,
    /// Why the answer stayed short, and every step down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What is written of one.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// Those that found the queue full since the line before it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<NonZeroU64>,
}

impl Entry {
    /// With the number of those that were left out since the one before it.
    fn line(&self, format: Format, left_out: u64) -> String {
        match format {
            Format::Json => {
                let line = Line { entry: self, left_out: NonZeroU64::new(left_out) };
                serde_json::to_string(&line).unwrap_or_default() + "\n"
            }
            Format::Text => {
                let client = self.client.map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
                let mechanism = self.mechanism.map(|by| format!(" {by}")).unwrap_or_default();
                let notes = self
                    .notes
                    .iter()
                    .fold(String::new(), |notes, note| notes + "; " + &shown(note).to_string());
                let took = Duration::from_secs_f64(self.seconds);
                let (time, request) = (&self.time, quoted(&self.request));
                let (status, bytes) = (self.status, self.bytes);
                let missing = match left_out {
                    0 => String::new(),
                    lines => format!("({lines} lines left out)\n"),
                };
                format!(
                    "{missing}{time} {client} \"{request}\" {status} {bytes} {took:.1?}{mechanism}{notes}\n"
                )
            }
        }
    }
}

/// Hands lines to the thread that writes them.
#[derive(Clone, Debug)]
pub struct Teller {
    queue: SyncSender<Entry>,
    left_out: Arc<AtomicU64>,
}

// Entries that may wait to be written.
const QUEUE: usize = 4096;

impl Teller {
    /// Starts the thread; it ends with the last teller.
    pub fn start(log: Log) -> io::Result<(Self, thread::JoinHandle<()>)> {
        let (queue, entries) = sync_channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        let teller = Self { queue, left_out: Arc::clone(&left_out) };
        let write = move || write(log, &entries, &left_out);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok((teller, thread))
    }

    /// Tells of one.
    pub fn tell(&self, entry: Entry) {
        if self.queue.try_send(entry).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(mut log: Log, entries: &Receiver<Entry>, left_out: &AtomicU64) {
    for entry in entries {
        let text = entry.line(log.format, left_out.swap(0, Ordering::Relaxed));
        // Who reads it may be gone: the server goes on.
        let _ = log.out.write_all(text.as_bytes());
    }
}

/// Now, as headers say it.
pub fn date(now: SystemTime) -> String {
    httpdate::fmt_http_date(now)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn entry() -> Entry {
        Entry {
            time: "now".to_owned(),
            client: None,
            request: "GET /\u{1b}[31m\n HTTP/1.1".to_owned(),
            status: 404,
            bytes: 0,
            seconds: 0.0,
            mechanism: Some("read-write"),
            notes: vec!["a\nb".to_owned()],
        }
    }

    #[test]
    fn no_request_steers_a_terminal_or_makes_a_line_of_its_own() {
        let entry = entry();
        let text = entry.line(Format::Text, 0);
        assert_eq!(
            text,
            "now unix \"GET /\\x1B[31m\\x0A HTTP/1.1\" 404 0 0.0ns read-write; a\\nb\n"
        );
        let json = entry.line(Format::Json, 0);
        assert!(json.contains(r"\u001b[31m\n") && json.lines().count() == 1, "{json}");
    }

    /// Writes nothing until somebody lets go of the other end.
    struct Slow {
        held: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Slow {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.held.recv();
            *self.written.lock().unwrap() += str::from_utf8(text).unwrap();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_the_queue_full_are_counted_in_a_later_one() {
        for format in [Format::Text, Format::Json] {
            let (hold, held) = sync_channel(0);
            let written = Arc::new(Mutex::new(String::new()));
            let out = Box::new(Slow { held, written: Arc::clone(&written) });
            let (teller, thread) = Teller::start(Log { format, out }).unwrap();
            let told = QUEUE as u64 + 10;
            for _ in 0..told {
                teller.tell(entry());
            }
            drop((hold, teller));
            thread.join().unwrap();
            let (mut lines, mut left_out) = (0, 0);
            for line in written.lock().unwrap().lines() {
                let counted = match format {
                    Format::Text => {
                        line.strip_prefix('(').and_then(|l| l.split_once(' ')?.0.parse().ok())
                    }
                    Format::Json => {
                        serde_json::from_str::<serde_json::Value>(line).unwrap()["left_out"]
                            .as_u64()
                    }
                };
                left_out += counted.unwrap_or(0);
                lines += u64::from(format == Format::Json || counted.is_none());
            }
            assert!(left_out >= 9, "{left_out} counted");
            assert_eq!(lines + left_out, told);
        }
    }
}
