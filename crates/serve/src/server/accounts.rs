//! What the workers count, and the page that shows it.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use thalweg_core::Report;

/// A count of every mechanism, by its name on the page.
type Column = (&'static str, fn(&Moved) -> String);

/// The counts of all workers.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Connections that are open.
    pub connections: AtomicUsize,
    pub accepted: AtomicU64,
    pub bytes: AtomicU64,
    pub changed: AtomicU64,
    pub parked: AtomicU64,
    pub cold: AtomicU64,
    /// Connections closed to make room for others.
    pub evicted: AtomicU64,
    /// Connections refused because their address had as many as it may.
    pub turned_away: AtomicU64,
    statuses: Statuses,
    mechanisms: Mutex<BTreeMap<&'static str, Moved>>,
}

/// A count for every status there may be: all workers count without waiting for each other.
#[derive(Debug)]
struct Statuses([AtomicU64; 600]);

impl Default for Statuses {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; 600])
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    transfers: u64,
    bytes: u64,
    steps_down: u64,
    /// Of the steps of a worker, what it waits for a client not among them.
    time: Duration,
}

impl Accounts {
    /// An answer has ended.
    pub fn answered(&self, status: u16, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(count) = self.statuses.0.get(usize::from(status)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A transfer has ended.
    pub fn moved(&self, report: &Report) {
        let mut mechanisms = self.mechanisms.lock().unwrap_or_else(PoisonError::into_inner);
        for share in &report.shares {
            let moved = mechanisms.entry(share.mechanism).or_default();
            moved.transfers += 1;
            moved.bytes += share.bytes;
        }
        if let Some(main) = report.main() {
            mechanisms.entry(main.mechanism).or_default().time += report.wall;
        }
        for step in &report.steps_down {
            mechanisms.entry(step.from).or_default().steps_down += 1;
        }
    }

    /// In the text format that Prometheus reads.
    /// `names`: bytes of the names of directories that are kept.
    pub fn page(&self, names: u64) -> String {
        let mut page = String::new();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let singles = [
            ("connections", "gauge", self.connections.load(Ordering::Relaxed) as u64),
            ("name_list_bytes", "gauge", names),
            ("connections_accepted_total", "counter", load(&self.accepted)),
            ("connections_evicted_total", "counter", load(&self.evicted)),
            ("connections_turned_away_total", "counter", load(&self.turned_away)),
            ("bytes_sent_total", "counter", load(&self.bytes)),
            ("answers_cut_short_by_a_change_total", "counter", load(&self.changed)),
            ("answers_parked_total", "counter", load(&self.parked)),
            ("cold_stretches_total", "counter", load(&self.cold)),
        ];
        // Into a string these never fail.
        for (name, kind, value) in singles {
            let _ = writeln!(page, "# TYPE thalweg_{name} {kind}\nthalweg_{name} {value}");
        }
        page.push_str("# TYPE thalweg_answers_total counter\n");
        let counts = self.statuses.0.iter().map(load).enumerate();
        for (status, count) in counts.filter(|(_, count)| *count > 0) {
            let _ = writeln!(page, "thalweg_answers_total{{status=\"{status}\"}} {count}");
        }
        let mechanisms = self.mechanisms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let columns: [Column; 4] = [
            ("transfers_total", |moved| moved.transfers.to_string()),
            ("moved_bytes_total", |moved| moved.bytes.to_string()),
            ("moving_seconds_total", |moved| format!("{:.6}", moved.time.as_secs_f64())),
            ("steps_down_total", |moved| moved.steps_down.to_string()),
        ];
        for (name, value) in columns {
            let _ = writeln!(page, "# TYPE thalweg_{name} counter");
            for (mechanism, moved) in &mechanisms {
                let count = value(moved);
                let _ = writeln!(page, "thalweg_{name}{{mechanism=\"{mechanism}\"}} {count}");
            }
        }
        page
    }
}
