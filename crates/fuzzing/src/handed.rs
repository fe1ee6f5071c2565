//! Variables of socket activation: no value may hand over a descriptor that was not meant for this process.

use thalweg_sys::handed::{MOST, count};

/// Runs one input: `LISTEN_PID` and `LISTEN_FDS`, one on each line.
pub fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (pid, fds) = text.split_once('\n').map_or((text, None), |(pid, fds)| (pid, Some(fds)));
    let number = count(Some(pid), fds, 4711);
    assert!((0..=MOST).contains(&number));
    let is_own = pid.trim_start_matches(['+', '0']) == "4711";
    assert!(number == 0 || is_own, "{pid}");
    assert_eq!(count(None, fds, 4711), 0);
    assert_eq!(count(Some("4712"), fds, 4711), 0);
}
