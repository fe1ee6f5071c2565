//! Counters of all workers, and the metrics page.

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

/// A counter that exists once per mechanism: its name on the metrics page, and the function that formats its value.
type MetricColumn = (&'static str, fn(&MechanismCounts) -> String);

/// The counters, shared by all workers.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Number of open connections.
    pub connections: AtomicUsize,
    pub accepted: AtomicU64,
    pub bytes: AtomicU64,
    pub changed: AtomicU64,
    pub parked: AtomicU64,
    pub readaheads: AtomicU64,
    /// Connections closed to make room for new ones.
    pub evicted: AtomicU64,
    /// Connections refused because their client address had reached its limit.
    pub turned_away: AtomicU64,
    statuses: Statuses,
    mechanisms: Mutex<BTreeMap<&'static str, MechanismCounts>>,
}

/// One atomic counter per status code, so that workers count without a lock.
#[derive(Debug)]
struct Statuses([AtomicU64; 600]);

impl Default for Statuses {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; 600])
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct MechanismCounts {
    transfers: u64,
    bytes: u64,
    steps_down: u64,
    /// Total duration of the transfer steps, without the time spent waiting for clients.
    time: Duration,
}

impl Accounts {
    /// Counts a finished answer.
    pub fn answered(&self, status: u16, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(count) = self.statuses.0.get(usize::from(status)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a finished transfer.
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

    /// Returns all counters in the Prometheus text format. `names`: memory of the cached directory listings, in bytes.
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
            ("cold_stretches_total", "counter", load(&self.readaheads)),
        ];
        // Writing into a `String` never fails.
        for (name, kind, value) in singles {
            let _ = writeln!(page, "# TYPE thalweg_{name} {kind}\nthalweg_{name} {value}");
        }
        page.push_str("# TYPE thalweg_answers_total counter\n");
        let counts = self.statuses.0.iter().map(load).enumerate();
        for (status, count) in counts.filter(|(_, count)| *count > 0) {
            let _ = writeln!(page, "thalweg_answers_total{{status=\"{status}\"}} {count}");
        }
        let mechanisms = self.mechanisms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let columns: [MetricColumn; 4] = [
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
