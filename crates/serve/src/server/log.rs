//! The access log: one line per answer, written by a separate thread so that a slow terminal does not block workers. If
//! the queue is full, lines are dropped and counted.

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

/// Destination and format of the log.
pub struct AccessLog {
    /// The format of the lines.
    pub format: Format,
    /// Receives each line in one write.
    pub out: Box<dyn Write + Send>,
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("format", &self.format).finish_non_exhaustive()
    }
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The log entry of one answer.
#[derive(Debug, Serialize)]
pub struct LogEntry {
    /// Time at which the answer ended, as an HTTP date.
    pub time: String,
    /// Address of the client. `None` on a Unix socket.
    pub client: Option<SocketAddr>,
    /// The request line. Empty if none was received.
    pub request: String,
    /// Status code of the answer.
    pub status: u16,
    /// Number of bytes sent, including the head.
    pub bytes: u64,
    /// Time from the complete request to the end of the answer.
    pub seconds: f64,
    /// The mechanism that moved most of the body, if the body did not fit in one send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<&'static str>,
    /// The reason if the answer is incomplete, and every fallback to another mechanism.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The serialized form of an entry.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    #[serde(flatten)]
    entry: &'a LogEntry,
    /// Number of entries dropped since the previous line, because the queue was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<NonZeroU64>,
}

impl LogEntry {
    /// Formats the entry. `left_out`: number of entries dropped since the previous line.
    fn line(&self, format: Format, left_out: u64) -> String {
        match format {
            Format::Json => {
                let line = LogLine { entry: self, left_out: NonZeroU64::new(left_out) };
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
                    lines => format!("({lines} lines of this log were dropped)\n"),
                };
                format!(
                    "{missing}{time} {client} \"{request}\" {status} {bytes} {took:.1?}{mechanism}{notes}\n"
                )
            }
        }
    }
}

/// Passes entries to the log thread.
#[derive(Clone, Debug)]
pub struct LogQueue {
    queue: SyncSender<LogEntry>,
    left_out: Arc<AtomicU64>,
}

// Capacity of the queue.
const QUEUE: usize = 4096;

impl LogQueue {
    /// Starts the log thread. It ends when the last `LogQueue` is dropped.
    pub fn start(log: AccessLog) -> io::Result<(Self, thread::JoinHandle<()>)> {
        let (queue, entries) = sync_channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        let log_queue = Self { queue, left_out: Arc::clone(&left_out) };
        let write = move || write(log, &entries, &left_out);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok((log_queue, thread))
    }

    /// Queues an entry, or counts it as dropped if the queue is full.
    pub fn report(&self, entry: LogEntry) {
        if self.queue.try_send(entry).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(mut log: AccessLog, entries: &Receiver<LogEntry>, left_out: &AtomicU64) {
    for entry in entries {
        let text = entry.line(log.format, left_out.swap(0, Ordering::Relaxed));
        // Write errors are ignored: the reader of the log may have exited, and the server continues.
        let _ = log.out.write_all(text.as_bytes());
    }
}

/// Formats a time as an HTTP date.
pub fn date(now: SystemTime) -> String {
    httpdate::fmt_http_date(now)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
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

    /// Writes nothing until the test releases the other end.
    struct SlowWriter {
        held: Receiver<()>,
        written: Arc<Mutex<String>>,
    }

    impl Write for SlowWriter {
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
            let out = Box::new(SlowWriter { held, written: Arc::clone(&written) });
            let (log_queue, thread) = LogQueue::start(AccessLog { format, out }).unwrap();
            let sent = QUEUE as u64 + 10;
            for _ in 0..sent {
                log_queue.report(entry());
            }
            drop((hold, log_queue));
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
            assert_eq!(lines + left_out, sent);
        }
    }
}
