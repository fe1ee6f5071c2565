//! What is told of every answer: a line, written by a thread of its own, so that a slow terminal holds up no
//! worker. Lines that find the queue full are counted and left out.

use std::{
    fmt, io,
    io::Write,
    net::SocketAddr,
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

impl Entry {
    fn line(&self, format: Format) -> String {
        match format {
            Format::Json => serde_json::to_string(self).unwrap_or_default() + "\n",
            Format::Text => {
                let client = self.client.map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
                let mechanism = self.mechanism.map(|by| format!(" {by}")).unwrap_or_default();
                let notes = self
                    .notes
                    .iter()
                    .fold(String::new(), |notes, note| notes + "; " + &shown(note).to_string());
                let took = Duration::from_secs_f64(self.seconds);
                let (time, request) = (&self.time, shown(&self.request));
                let (status, bytes) = (self.status, self.bytes);
                format!(
                    "{time} {client} \"{request}\" {status} {bytes} {took:.1?}{mechanism}{notes}\n"
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
        let mut text = entry.line(log.format);
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 && log.format == Format::Text {
            text = format!("{text}({missing} lines left out)\n");
        }
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
    use super::*;

    #[test]
    fn no_request_steers_a_terminal_or_makes_a_line_of_its_own() {
        let entry = Entry {
            time: "now".to_owned(),
            client: None,
            request: "GET /\u{1b}[31m\n HTTP/1.1".to_owned(),
            status: 404,
            bytes: 0,
            seconds: 0.0,
            mechanism: Some("read-write"),
            notes: vec!["a\nb".to_owned()],
        };
        let text = entry.line(Format::Text);
        assert_eq!(
            text,
            "now unix \"GET /\\u{1b}[31m\\n HTTP/1.1\" 404 0 0.0ns read-write; a\\nb\n"
        );
        let json = entry.line(Format::Json);
        assert!(json.contains(r"\u001b[31m\n") && json.lines().count() == 1, "{json}");
    }
}
