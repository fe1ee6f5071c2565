//! Keeps what the client at the other end of a byte stream reports about itself: its exit status,
//! and text that is not a request.

use std::sync::{Mutex, PoisonError};

use crate::stream::ENDED;

/// The report of the client at the other end of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    /// The exit status of the client. `None`: it has ended without a report.
    pub status: Option<u8>,
    /// A line that is not a request, such as one that a login script prints.
    pub noise: Option<String>,
}

/// Collects the report.
#[derive(Debug, Default)]
pub struct StreamReports(Mutex<StreamReport>);

impl StreamReports {
    /// Records the status of a query `ended=N`. Returns `false` for any other query.
    pub fn note_end(&self, query: Option<&str>) -> bool {
        let status = query.and_then(|query| query.strip_prefix(ENDED)?.parse().ok());
        if status.is_some() {
            self.change(|report| report.status = status);
        }
        status.is_some()
    }

    /// Records the first line that is not a request.
    pub fn note_noise(&self, line: &str) {
        self.change(|report| {
            report.noise.get_or_insert_with(|| line.to_owned());
        });
    }

    /// Returns what was recorded.
    pub fn report(&self) -> StreamReport {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut StreamReport)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::StreamReports;

    #[test]
    fn the_last_status_and_the_first_noise_are_kept() {
        let reports = StreamReports::default();
        for query in [None, Some("ended"), Some("ended=256"), Some("ended=-1"), Some("manifest")] {
            assert!(!reports.note_end(query), "{query:?}");
        }
        assert_eq!(reports.report().status, None);
        assert!(reports.note_end(Some("ended=3")) && reports.note_end(Some("ended=0")));
        reports.note_noise("Welcome");
        reports.note_noise("again");
        let report = reports.report();
        assert_eq!((report.status, report.noise.as_deref()), (Some(0), Some("Welcome")));
    }
}
