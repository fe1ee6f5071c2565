//! The state of a running transfer, and values derived from it: percentage, rates, remaining time. They are formatted
//! as a sentence and as JSON.

use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fmt::Write,
    time::{Duration, Instant},
};
use thalweg_tree::{Progress, Total};

use crate::output::{
    quantity,
    summary_words::{RATED, count, grouped},
};

/// Period over which the current rate is averaged.
const WINDOW: Duration = Duration::from_secs(3);

/// State of a running transfer, from which a `ProgressMeter` formats its line.
pub struct MeterState {
    /// Label of the line.
    pub label: String,
    pub moved: u64,
    /// Bytes present before the job.
    pub before: u64,
    /// Bytes to move, if known beforehand.
    pub expected: Option<u64>,
    /// For a tree: the processed files, the totals once counted, and the current file.
    pub tree: Option<TreeState>,
    /// `true` if SIGUSR1 requested a line.
    pub asked_for: bool,
    /// `true` if the job has ended.
    pub over: bool,
    began: Instant,
    recent: VecDeque<(Instant, u64)>,
}

/// The progress of a tree copy.
#[derive(Default)]
pub struct TreeState {
    /// Source files that were processed, moved or not.
    pub settled: Total,
    /// The totals, once counted.
    pub total: Option<Total>,
    /// `true` while the count is running.
    pub counting: bool,
    /// The current source file.
    pub current: String,
}

impl TreeState {
    /// Returns the number of all files. `None` if it is unknown, or if more files were processed than counted.
    pub fn counted(&self) -> Option<u64> {
        self.total.map(|total| total.files).filter(|all| *all >= self.settled.files)
    }
}

impl MeterState {
    pub fn new(label: Option<&str>, expected: Option<u64>) -> Self {
        Self {
            label: label.unwrap_or_default().to_owned(),
            moved: 0,
            before: 0,
            expected,
            tree: None,
            asked_for: false,
            over: false,
            began: Instant::now(),
            recent: VecDeque::new(),
        }
    }

    /// Records the number of bytes moved so far.
    pub fn advance(&mut self, moved: u64) {
        let now = Instant::now();
        self.moved = self.moved.max(moved);
        let since = self.recent.back().map_or(WINDOW, |(at, _)| now - *at);
        if since >= WINDOW / 30 {
            self.recent.push_back((now, self.moved));
        }
        while self.recent.front().is_some_and(|(at, _)| now - *at > WINDOW) {
            self.recent.pop_front();
        }
    }

    /// Records the progress of a tree copy.
    pub fn advance_tree(&mut self, progress: Progress) {
        let tree = self.tree.get_or_insert_default();
        // The reports of several workers may arrive out of order.
        if progress.settled.files >= tree.settled.files {
            tree.settled.files = progress.settled.files;
        }
        tree.settled.bytes = tree.settled.bytes.max(progress.settled.bytes);
        self.advance(progress.bytes);
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the bytes processed, and their total.
    fn part(&self) -> (u64, Option<u64>) {
        match &self.tree {
            Some(TreeState { settled, total: Some(total), .. }) => {
                (settled.bytes, Some(total.bytes))
            }
            // The size of a single file is known before anything moves.
            Some(TreeState { settled, .. }) => (settled.bytes, self.expected),
            None => (self.before + self.moved, self.expected),
        }
    }

    /// Returns the completed percentage; `None` without a total. A tree reaches 100 % only after all files are
    /// processed. All bytes may be processed earlier, because the last files may be empty, or other files may have
    /// grown.
    pub fn percent(&self) -> Option<u64> {
        let (done, total) = self.part();
        let files =
            self.tree.as_ref().and_then(|tree| Some((tree.settled.files, tree.total?.files)));
        let most = match files {
            Some((done, all)) if done < all && !self.over => 99,
            _ => 100,
        };
        let (done, total) = match (total?, files) {
            (0, Some((done, all))) => (done, all),
            (total, _) => (done, total),
        };
        if total == 0 {
            return Some(100);
        }
        Some(((u128::from(done.min(total)) * 100 / u128::from(total)) as u64).min(most))
    }

    /// Returns the remaining time, if the average rate continues.
    pub fn left(&self) -> Option<Duration> {
        let (done, total) = self.part();
        let rate = done.saturating_sub(self.before) as f64 / self.elapsed().as_secs_f64();
        Duration::try_from_secs_f64(total?.saturating_sub(done) as f64 / rate).ok()
    }

    /// Returns the rate over the last [`WINDOW`].
    pub fn rate_now(&self) -> String {
        let oldest = self.recent.front().filter(|_| self.recent.len() > 1);
        let (since, before) = oldest.copied().unwrap_or((self.began, 0));
        quantity::rate(self.moved - before, since.elapsed())
    }

    /// Returns the average rate since the start.
    pub fn rate(&self) -> String {
        quantity::rate(self.moved, self.elapsed())
    }

    /// Returns `true` while the total is being counted.
    pub fn is_counting(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.counting)
    }

    /// Returns text such as `1.2 GiB in 4.0 s, 312.4 MiB/s, 42 %, left 8.0 s, 12 of 99 files, at 'name'`.
    pub fn sentence(&self) -> String {
        let took = quantity::duration(self.elapsed());
        let label = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        let mut text = format!("{label}{} in {took}", quantity::bytes(self.moved));
        if self.moved >= RATED {
            let _ = write!(text, ", {}", self.rate());
        }
        if let Some(percent) = self.percent() {
            let _ = write!(text, ", {percent} %");
        }
        if let Some(left) = self.left().filter(|left| !left.is_zero() && !self.over) {
            let _ = write!(text, ", left {}", quantity::duration(left));
        }
        let Some(tree) = &self.tree else { return text };
        let done = tree.settled.files;
        let _ = match tree.counted() {
            Some(all) => write!(text, ", {} of {}", grouped(done), count(all, "file", "files")),
            None => write!(text, ", {}", count(done, "file", "files")),
        };
        if tree.counting {
            text.push_str(", counting");
        }
        if !tree.current.is_empty() && !self.over {
            let _ = write!(text, ", at '{}'", tree.current);
        }
        text
    }

    /// Returns the progress as JSON.
    pub fn json(&self) -> Value {
        let seconds = self.elapsed().as_secs_f64();
        let (_, total) = self.part();
        let mut progress = json!({
            "bytes": self.moved, "total": total, "seconds": seconds,
            "bytes_per_second": self.moved as f64 / seconds.max(1e-9),
            "eta_seconds": self.left().map(|left| left.as_secs_f64()), "done": self.over,
        });
        if !self.label.is_empty() {
            progress["name"] = json!(self.label);
        }
        if let Some(tree) = &self.tree {
            progress["settled_bytes"] = json!(tree.settled.bytes);
            progress["files"] = json!(tree.settled.files);
            progress["total_files"] = json!(tree.total.map(|total| total.files));
            progress["counting"] = json!(tree.counting);
            progress["current"] = json!(tree.current);
        }
        json!({ "progress": progress })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_begins_with_its_label_and_ends_without_time_left() {
        let mut state = MeterState::new(Some("disk"), Some(10));
        state.advance(5);
        assert!(state.sentence().starts_with("disk: 5 B in "), "{}", state.sentence());
        assert!(state.sentence().contains(", 50 %, left "), "{}", state.sentence());
        assert_eq!(state.json()["progress"]["name"], "disk");
        state.advance(10);
        assert!(state.sentence().ends_with(", 100 %"), "{}", state.sentence());
        assert_eq!(MeterState::new(None, None).json()["progress"].get("name"), None);
    }

    #[test]
    fn a_tree_has_a_part_only_once_it_is_counted_and_never_more_than_all() {
        let mut state = MeterState::new(None, None);
        let settled = Total { files: 3, bytes: 900 };
        state.advance_tree(Progress { files: 2, bytes: 500, settled });
        assert_eq!((state.percent(), state.json()["progress"]["total"].as_u64()), (None, None));
        assert!(state.sentence().contains("3 files"), "{}", state.sentence());
        state.tree.as_mut().unwrap().total = Some(Total { files: 4, bytes: 1000 });
        assert_eq!(state.percent(), Some(90));
        assert!(state.sentence().contains("3 of 4 files"), "{}", state.sentence());
        state.tree.as_mut().unwrap().total = Some(Total { files: 4, bytes: 900 });
        assert_eq!(state.percent(), Some(99), "a file is left");
        state.tree.as_mut().unwrap().total = Some(Total { files: 6, bytes: 0 });
        assert_eq!(state.percent(), Some(50), "all files are empty");
        state.tree.as_mut().unwrap().total = Some(Total { files: 1, bytes: 10 });
        assert_eq!(state.percent(), Some(100));
        assert!(state.sentence().contains(", 3 files"), "{}", state.sentence());
        state.tree.as_mut().unwrap().total = Some(Total { files: 4005, bytes: 1000 });
        assert!(state.sentence().contains(", 3 of 4,005 files"), "{}", state.sentence());
    }
}
