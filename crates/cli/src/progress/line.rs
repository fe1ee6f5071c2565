//! The progress line: the most important parts that fit the terminal. The name of the current file or a bar fills the
//! rest.

use rustix::termios::tcgetwinsize;
use std::time::Duration;

use super::state::MeterState;
use crate::output::{
    quantity,
    summary_words::{count, grouped},
};

/// Returns the width of the terminal on standard error, minus one: a cursor in the last column may wrap.
pub fn width() -> usize {
    let size = tcgetwinsize(rustix::stdio::stderr()).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 1).map_or(79, |columns| columns - 1)
}

/// A part of the line. If the line is too long, the part with the highest `goes` is dropped first.
struct LinePart {
    text: String,
    goes: u8,
}

/// Smallest width, in columns, of a name or a bar.
const LEAST: usize = 10;

/// Formats the line in at most `columns` columns.
pub fn of(state: &MeterState, columns: usize) -> String {
    let mut parts = parts(state);
    while length(&parts) > columns && parts.len() > 1 {
        let first = parts.iter().enumerate().max_by_key(|(_, part)| part.goes);
        if let Some((n, _)) = first {
            parts.remove(n);
        }
    }
    let mut line: String =
        parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" ");
    let room = columns.saturating_sub(length(&parts) + 1);
    if room >= LEAST {
        let filler = filler(state, room);
        if !filler.is_empty() {
            line = format!("{line} {filler}");
        }
    }
    line
}

fn parts(state: &MeterState) -> Vec<LinePart> {
    let mut parts = Vec::new();
    let mut part = |text: String, goes| parts.push(LinePart { text, goes });
    if !state.label.is_empty() {
        part(format!("{}:", state.label), 5);
    }
    if let Some(percent) = state.percent() {
        part(format!("{percent:>3}%"), 0);
    } else if state.is_counting() {
        part("counting".to_owned(), 3);
    }
    part(quantity::bytes(state.moved), 1);
    part(clock(state.elapsed()), 7);
    part(state.rate_now(), 4);
    part(format!("(average {})", state.rate()), 8);
    if let Some(left) = state.left() {
        part(format!("left {}", clock(left)), 2);
    }
    if let Some(tree) = &state.tree {
        let done = tree.settled.files;
        let files = match tree.counted() {
            Some(all) => format!("{}/{}", grouped(done), count(all, "file", "files")),
            None => count(done, "file", "files"),
        };
        part(files, 6);
    }
    parts
}

/// Formats a duration as `0:07` or `1:02:03`, without fractions of a second.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours == 0 {
        format!("{minutes}:{seconds:02}")
    } else {
        format!("{hours}:{minutes:02}:{seconds:02}")
    }
}

fn filler(state: &MeterState, room: usize) -> String {
    if let Some(tree) = &state.tree {
        return cut(&tree.current, room);
    }
    let Some(percent) = state.percent() else { return String::new() };
    let steps = room - 2;
    let done = steps * percent as usize / 100;
    let arrow = if done < steps { ">" } else { "" };
    format!("[{}{arrow:<1$}]", "=".repeat(done), steps - done)
}

/// Shortens a long name to its end, because consecutive names differ more often at the end than at the start.
fn cut(name: &str, room: usize) -> String {
    if columns(name) <= room {
        return name.to_owned();
    }
    let mut kept = 0;
    let tail = name.chars().rev().take_while(|c| {
        kept += column(*c);
        kept + 3 <= room
    });
    let tail: Vec<char> = tail.collect();
    let tail: String = tail.into_iter().rev().collect();
    format!("...{tail}")
}

fn length(parts: &[LinePart]) -> usize {
    parts.iter().map(|part| columns(&part.text) + 1).sum::<usize>().saturating_sub(1)
}

fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Returns the number of columns of a character. A character outside ASCII may need two, so it always counts as two.
fn column(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use thalweg_tree::{Progress, Total};

    fn tree(name: &str) -> MeterState {
        let mut state = MeterState::new(None, None);
        let settled = Total { files: 1234, bytes: 420 << 20 };
        state.advance_tree(Progress { files: 1000, bytes: 400 << 20, settled });
        let tree = state.tree.as_mut().unwrap();
        tree.total = Some(Total { files: 49_920, bytes: 1000 << 20 });
        name.clone_into(&mut tree.current);
        state
    }

    #[test]
    fn a_narrow_line_keeps_the_part_the_bytes_and_the_time_left() {
        let line = of(&tree("usr/share/doc/a-package/copyright"), 39);
        assert!(line.starts_with(" 42% 400.0 MiB ") && line.contains("left "), "{line}");
        let wide = of(&tree("usr/share/doc/a-package/copyright"), 119);
        assert!(wide.contains("1,234/49,920 files") && wide.ends_with("copyright"), "{wide}");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(name in ".{0,80}", room in 20_usize..200, total: u64) {
            let mut state = tree(&name);
            prop_assert!(columns(&of(&state, room)) <= room);
            state.tree = None;
            state.expected = Some(total);
            prop_assert!(columns(&of(&state, room)) <= room);
            state.label = name;
            prop_assert!(columns(&of(&state, room)) <= room);
        }
    }
}
