//! Text output of a trial, for 80 columns.

use std::fmt::Write;
use thalweg_core::shown;
use thalweg_lab::trial::{
    OBJECT_ALONE, Reached, ReachedBand, SettingKind, TrialEffect, TrialResult, TrialRow,
};
use thalweg_measure::arms::command::RunMetric;

use crate::output::{
    paint, quantity,
    ratio::{bar, interval, number},
};

const COLUMNS: usize = 80;
const NAME: usize = 15;

/// Formats the whole result.
pub fn text(found: &TrialResult, metric: &RunMetric, color: bool) -> String {
    let mut text = answer(found);
    text.push_str(&head(found));
    let _ = writeln!(
        text,
        "\n{:NAME$} {:>9} {:17} {:^14} VERDICT",
        "VARIANT", "VALUE", "RATIO [95 %]", "worse | better",
    );
    for row in &found.rows {
        text.push_str(&line(row, metric, color));
    }
    if found.rows.iter().any(|row| row.setting.name == OBJECT_ALONE) {
        text.push_str(&wrapped(&format!(
            "{OBJECT_ALONE}: the functions of libc, called through the preloaded object; shows the \
             cost of this object itself"
        )));
    }
    text.push_str(&beyond(found, color));
    for row in &found.rows {
        if let SettingKind::Tunables { text: setting } = &row.setting.kind {
            text.push_str(&wrapped(&format!("{}: GLIBC_TUNABLES={setting}", row.setting.name)));
        }
    }
    for out in &found.left_out {
        text.push_str(&wrapped(&format!("not tried: {}: {}", out.name, out.reason)));
    }
    if let Some(reached) = &found.reached {
        text.push('\n');
        text.push_str(&through(reached));
    }
    text
}

/// Formats a line for each kernel or setting that makes a difference.
fn answer(found: &TrialResult) -> String {
    let mut text = String::new();
    for row in &found.rows {
        let (Some(ratio), Some(effect)) = (&row.ratio, row.effect) else { continue };
        if effect != TrialEffect::NoDifferenceShown {
            let name = &row.setting.name;
            text.push_str(&wrapped(&format!(
                "{name}: {effect}, {} of the value with libc",
                interval(ratio)
            )));
        }
    }
    if text.is_empty() { "no difference shown\n".to_owned() } else { text }
}

fn head(found: &TrialResult) -> String {
    let program = &found.program;
    let files: Vec<String> = program.files.iter().map(|file| shown(file).to_string()).collect();
    let mut text = wrapped(&files.join(", run by "));
    if let Some(remark) = &program.remark {
        text.push_str(&wrapped(remark));
    }
    text.push_str(&wrapped(&format!("compared by {}", found.metric)));
    let rounds = found.rounds;
    let noise = found.noise * 100.0;
    text.push_str(&wrapped(&format!("{rounds} rounds, noise {noise:.0} %")));
    let smallest = found.rows.iter().filter_map(|row| row.smallest);
    let ends = smallest.fold(None, |ends: Option<(f64, f64)>, one| {
        let (least, most) = ends.unwrap_or((one, one));
        Some((least.min(one), most.max(one)))
    });
    if let Some((least, most)) = ends.map(|(least, most)| (least * 100.0, most * 100.0)) {
        let upto = if most - least < 1.0 { String::new() } else { format!(" to {most:.0}") };
        text.push_str(&wrapped(&format!("smallest detectable difference: {least:.0}{upto} %")));
    }
    text
}

/// Formats the ratio of every kernel to libc's functions, both called through the preloaded object. This ratio excludes
/// the cost of the object itself.
fn beyond(found: &TrialResult, color: bool) -> String {
    let rows = found.rows.iter().filter_map(|row| Some((row, row.beyond_object?)));
    let mut text = String::new();
    for (row, beyond) in rows {
        if text.is_empty() {
            let _ = writeln!(text, "\nCOMPARED WITH {OBJECT_ALONE}");
        }
        let line =
            format!("{:NAME$} {:17} {}", row.setting.name, interval(&beyond.ratio), beyond.effect);
        let strong = beyond.effect != TrialEffect::NoDifferenceShown;
        text.push_str(&paint::strong(line.trim_end(), color && strong));
        text.push('\n');
    }
    text
}

fn line(row: &TrialRow, metric: &RunMetric, color: bool) -> String {
    let mut text = String::new();
    let name = &row.setting.name;
    if name.chars().count() > NAME {
        let _ = write!(text, "{name}\n{:NAME$}", "");
    } else {
        let _ = write!(text, "{name:NAME$}");
    }
    if let Some(failed) = &row.failed {
        return wrapped(&format!("{} failed: {failed}", text.trim_end()));
    }
    let value = row.value.map_or("-".to_owned(), |value| number(value.median, &metric.what));
    let _ = write!(text, " {value:>9}");
    if let Some(ratio) = &row.ratio {
        let interval = interval(ratio);
        let effect = row.effect.unwrap_or(TrialEffect::NoDifferenceShown);
        let _ = write!(text, " {interval:17} {:14} {effect}", bar(ratio, metric.better));
    }
    let strong = row.effect.is_some_and(|effect| effect != TrialEffect::NoDifferenceShown);
    paint::strong(text.trim_end(), color && strong) + "\n"
}

fn through(reached: &Reached) -> String {
    let mut text = wrapped(&format!(
        "Calls through the preloaded object in one separate run: {}, {}, in {}",
        quantity::count(reached.calls, "call", "calls"),
        quantity::bytes(reached.bytes),
        quantity::count(reached.processes, "process", "processes"),
    ));
    if reached.calls > 0 {
        let _ = writeln!(
            text,
            "{:NAME$} {:>11} {:>11} {:>11} {:>10}",
            "SIZE", "MEMCPY", "MEMMOVE", "MEMSET", "BYTES"
        );
    } else {
        text.push_str(&wrapped(
            "No call goes through the preloaded object: no kernel can make a difference, and \
             differences in the table are noise.",
        ));
    }
    for band in &reached.bands {
        text.push_str(&band_line(band, reached.bytes));
    }
    text + "\n"
        + &wrapped(
            "Calls that no kernel replaces: copies inside libc (stdio, realloc, qsort; only libc's \
             thresholds change them), inlined copies, generated code, static programs, and copies by Go.",
        )
}

fn band_line(band: &ReachedBand, all: u64) -> String {
    // The last range has no upper limit.
    let size = match (band.from, band.upto) {
        (from, u64::MAX) => format!("{} and up", quantity::bytes(from)),
        (from, upto) if upto < 1024 => format!("{from}-{upto} B"),
        (from, upto) => format!("{}-{}", whole(from), whole(upto + 1)),
    };
    let share = band.bytes as f64 / all.max(1) as f64;
    let bar = "#".repeat((share * 16.0).round() as usize);
    let line = format!(
        "{size:NAME$} {:>11} {:>11} {:>11} {:>10} {bar}",
        band.memcpy,
        band.memmove,
        band.memset,
        quantity::bytes(band.bytes)
    );
    line.trim_end().to_owned() + "\n"
}

/// Formats a size such as `4 KiB`: the ends of ranges are powers of two.
fn whole(bytes: u64) -> String {
    quantity::bytes(bytes).replace(".0", "")
}

/// Wraps words into lines of at most 80 columns. A longer word has its own line.
fn wrapped(words: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in words.split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > COLUMNS {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += len;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_lose_no_word() {
        let words = "word ".repeat(60) + &"x".repeat(100) + " end";
        let text = wrapped(&words);
        assert!(text.lines().all(|line| line.len() <= COLUMNS || line.trim().starts_with("xxx")));
        assert_eq!(text.split_whitespace().count(), 62);
    }

    #[test]
    fn numbers_and_ranges_are_read_at_a_glance() {
        let line = |from, upto| band_line(&ReachedBand { from, upto, ..ReachedBand::default() }, 0);
        assert!(line(0, 15).starts_with("0-15 B "));
        assert!(line(1024, 4095).starts_with("1 KiB-4 KiB "));
        assert!(line(1 << 62, u64::MAX).starts_with("4.0 EiB and up"));
    }
}
