//! Output of a comparison: text, Markdown for a pull request, and CSV with every run.

use std::fmt::Write;
use thalweg_core::{escape::csv, shown};
use thalweg_measure::{
    arms::command::{BetterDirection, MeasuredValue, RunMetric},
    compare::{CompareResult, CompareRow, ComparedFigure},
    stats::RatioVerdict,
};

use crate::output::{
    paint, quantity,
    ratio::{bar, interval, number, says_nothing},
};

/// The data to print, and the options of printing.
pub struct Printed<'f> {
    pub found: &'f CompareResult,
    pub metric: &'f RunMetric,
    pub color: bool,
}

impl Printed<'_> {
    /// Formats the answers, then the table.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.found.rows {
            if let Some(answer) = self.answer(row) {
                text.push_str(&(paint::strong(&answer, self.color) + "\n"));
            }
        }
        let _ = writeln!(
            text,
            "\n{:12} {:>9} {:17} {:^14} VERDICT",
            "", "MEDIAN", "RATIO [95 %]", "more | less"
        );
        for row in &self.found.rows {
            let _ = writeln!(text, "{}", shown(&row.name));
            if let Some(why) = &row.failed {
                let _ = writeln!(text, "  no verdict: {}", shown(why));
            }
            for figure in &row.figures {
                text.push_str(&self.line(figure));
            }
        }
        text + "\n" + &self.conditions() + "\n"
    }

    /// Returns text such as `thalweg copy A B: faster than cp A B: 0.65 [0.60, 0.70] of its time`.
    fn answer(&self, row: &CompareRow) -> Option<String> {
        let (other, judged) = (self.found.rows.get(row.against?)?, row.judged());
        let (name, other) = (shown(&row.name), shown(&other.name));
        let (ratio, verdict) = (judged.ratio.as_ref()?, judged.verdict?);
        let interval = interval(ratio);
        let word = word(&judged.metric, verdict);
        Some(match verdict {
            RatioVerdict::NoDifferenceShown if says_nothing(ratio) => format!("{name}: {interval}"),
            RatioVerdict::NoDifferenceShown => format!("{name}: {word}: {interval} of {other}"),
            _ => format!(
                "{name}: {word} than {other}: {interval} of its {}",
                figure_name(&judged.metric)
            ),
        })
    }

    fn line(&self, figure: &ComparedFigure) -> String {
        let value = figure.value.map_or("-".to_owned(), |value| self.number(figure, value.median));
        let mut line = format!("  {:10} {value:>9}", figure_name(&figure.metric));
        if let Some((ratio, verdict)) = figure.ratio.as_ref().zip(figure.verdict) {
            // The bar extends to the right for smaller numbers, even if larger ones are better.
            let bar = bar(ratio, BetterDirection::Lower);
            let _ =
                write!(line, " {:17} {bar:14} {}", interval(ratio), word(&figure.metric, verdict));
        }
        line.trim_end().to_owned() + "\n"
    }

    fn number(&self, figure: &ComparedFigure, value: f64) -> String {
        match figure.metric.as_str() {
            "wall" => number(value, &MeasuredValue::Wall),
            "cpu" => number(value, &MeasuredValue::Cpu),
            _ => number(value, &self.metric.what),
        }
    }

    /// Returns text such as `compared by wall, lower is better; 20 rounds; noise 3 %`.
    fn conditions(&self) -> String {
        let found = self.found;
        let noise = found.noise.first().copied().unwrap_or_default() * 100.0;
        let mut text = format!(
            "compared by {}; {}; noise {noise:.0} %",
            found.judged_by,
            quantity::count(found.rounds as u64, "round", "rounds"),
        );
        if !found.marks.is_empty() {
            let disturbed = quantity::count(found.marks.len() as u64, "run was", "runs were");
            let _ = write!(text, "; {disturbed} disturbed by other processes");
        }
        text
    }

    /// Formats a Markdown table.
    pub fn markdown(&self) -> String {
        let mut text = "| command | figure | median | ratio [95 %] | verdict |\n".to_owned();
        text.push_str("|---|---|---:|---:|---|\n");
        for row in &self.found.rows {
            let name = row.name.replace('|', "\\|").replace('`', "'");
            for figure in &row.figures {
                let value = figure.value.map_or("-".to_owned(), |v| self.number(figure, v.median));
                let ratio = figure.ratio.as_ref().map_or(String::new(), interval);
                let verdict = figure.verdict.map_or("", |verdict| word(&figure.metric, verdict));
                let name = shown(&name);
                let figure = figure_name(&figure.metric);
                let _ = writeln!(text, "| `{name}` | {figure} | {value} | {ratio} | {verdict} |");
            }
        }
        text + "\n" + &self.conditions() + "\n"
    }

    /// Formats every run, in the order of execution.
    pub fn csv(&self) -> String {
        let mut text =
            "round,command,wall_seconds,user_seconds,sys_seconds,minor_faults,major_faults,\
            voluntary_switches,involuntary_switches,judged_by\n"
                .to_owned();
        for (round, entries) in self.found.log.rounds.iter().enumerate() {
            for entry in entries {
                let (name, s) = (csv(&self.found.rows[entry.arm].name), &entry.sample);
                let _ = writeln!(
                    text,
                    "{round},{name},{},{},{},{},{},{},{},{}",
                    s.wall.as_secs_f64(),
                    s.user.as_secs_f64(),
                    s.sys.as_secs_f64(),
                    s.minor_faults,
                    s.major_faults,
                    s.voluntary_switches,
                    s.involuntary_switches,
                    s.reported,
                );
            }
        }
        text
    }
}

fn figure_name(metric: &str) -> &str {
    match metric {
        "wall" => "wall time",
        "cpu" => "CPU time",
        "maxrss" => "memory",
        _ => "printed",
    }
}

fn word(metric: &str, verdict: RatioVerdict) -> &'static str {
    match (metric, verdict) {
        (_, RatioVerdict::NoDifferenceShown) => "no difference shown",
        ("wall", RatioVerdict::Faster) => "faster",
        ("wall", RatioVerdict::Slower) => "slower",
        ("cpu" | "maxrss", RatioVerdict::Faster) => "less",
        ("cpu" | "maxrss", RatioVerdict::Slower) => "more",
        (_, RatioVerdict::Faster) => "better",
        (_, RatioVerdict::Slower) => "worse",
    }
}
