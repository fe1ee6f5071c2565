//! Summarizes a profile in five lines: the method to use on this machine for files, pipes, sockets, memory and
//! processes, or the default if no method is better.

use serde::Serialize;
use std::fmt::Write;
use thalweg_core::{
    Guarantees, Prefer, Profile, Tuning,
    profile::{Cell, FILL, Load, MatchingCells, SinkState},
    quantity::Size,
};

use super::{
    emit::bands,
    job::{EndKeys, TunedMethod},
    table::AskedMethod,
};

/// The kinds of data transfer, as users name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    Files,
    Pipes,
    Sockets,
    Memory,
    Processes,
}

const ALL: [(Of, &str); 5] = [
    (Of::Files, "files"),
    (Of::Pipes, "pipes"),
    (Of::Sockets, "sockets"),
    (Of::Memory, "memory"),
    (Of::Processes, "processes"),
];

/// A line of advice.
#[derive(Clone, Debug, Serialize)]
pub struct TuneAdvice {
    pub of: Of,
    /// The line, without its name.
    pub text: String,
    /// The data behind the line: for each pair of ends, its size bands in ascending order.
    pub bands: Vec<Advised>,
}

/// A band of sizes with the same advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advised {
    /// The pair of ends, for example `file:ext4 -> pipe`.
    pub pair: String,
    /// The last size of the band; `None` if it has no upper end.
    pub upto: Option<u64>,
    /// The method that is better than the default with certainty; `None` if no method is.
    pub way: Option<TunedMethod>,
    /// The smallest and largest cost of that method relative to the default.
    pub share: Option<[f64; 2]>,
    /// The method that is used without a profile.
    pub default: String,
}

impl TuneAdvice {
    /// Returns the name at the start of the line.
    pub fn name(&self) -> &'static str {
        ALL.iter().find(|(of, _)| *of == self.of).map_or("", |(_, name)| name)
    }
}

/// Returns the five lines. A choice counts only if its interval and that of the default do not overlap.
pub fn advice(profile: &Profile, prefer: Prefer) -> Vec<TuneAdvice> {
    let conditions = conditions(profile);
    let line = |(of, name): (Of, &str)| {
        let own = conditions.iter().filter(|(keys, _, _)| kind(keys) == of);
        let bands: Vec<Vec<Advised>> = own
            .filter_map(|(keys, load, state)| pair(profile, keys, *load, *state, prefer))
            .collect();
        let text = match text(&bands) {
            text if text.is_empty() => {
                format!("not measured; the default applies (to measure: {})", how(name))
            }
            text => text,
        };
        TuneAdvice { of, text, bands: bands.into_iter().flatten().collect() }
    };
    ALL.into_iter().map(line).collect()
}

fn how(name: &str) -> &'static str {
    match name {
        "files" => "thalweg tune --pair file:file@DIR",
        "pipes" => "thalweg tune --pair file:pipe",
        "sockets" => "thalweg tune --pair file:tcp",
        "memory" => "thalweg tune --pair memory:memory",
        _ => "thalweg tune --pair process:process",
    }
}

fn kind(keys: &EndKeys) -> Of {
    let ends = [keys.source.as_str(), keys.sink.as_str()];
    let any = |prefix: &str| ends.iter().any(|end| end.starts_with(prefix));
    match () {
        () if any("process") => Of::Processes,
        () if any("socket") => Of::Sockets,
        () if any("pipe") => Of::Pipes,
        () if any("file") => Of::Files,
        () => Of::Memory,
    }
}

/// Returns every measured combination of source, sink and sink state, each with the lightest load under which it was
/// measured. Ignores provisional cells.
fn conditions(profile: &Profile) -> Vec<(EndKeys, Load, SinkState)> {
    let mut all: Vec<(EndKeys, Load, SinkState)> = Vec::new();
    for cell in profile.cells.iter().filter(|cell| !cell.provisional) {
        let keys = EndKeys::of(cell).plain();
        match all.iter_mut().find(|(known, _, state)| *known == keys && *state == cell.sink_state) {
            Some((_, load, _)) => *load = (*load).min(cell.load),
            None => all.push((keys, cell.load, cell.sink_state)),
        }
    }
    all
}

/// Returns the advice for one pair of ends, size by size; `None` if the default was not measured.
fn pair(
    profile: &Profile,
    keys: &EndKeys,
    load: Load,
    sink_state: SinkState,
    prefer: Prefer,
) -> Option<Vec<Advised>> {
    let asked = AskedMethod { size: 1, needs: Guarantees::COPIED, prefer, load, sink_state };
    let cells: Vec<&Cell> = profile
        .cells
        .iter()
        .filter(|cell| EndKeys::of(cell).plain() == *keys && !cell.provisional)
        .filter(|cell| (cell.load, cell.sink_state) == (load, sink_state))
        .collect();
    let is_measured = |name: &&str| cells.iter().any(|cell| cell.mechanism == *name);
    let default = keys.contest().without_profile(keys, &asked).into_iter().find(is_measured)?;
    let mut advised: Vec<Advised> = Vec::new();
    let mut least = 0;
    for (upto, way) in bands(profile, keys, asked) {
        let sizes = cells.iter().map(|cell| cell.size).filter(|size| (least..=upto).contains(size));
        let share = share(&cells, sizes.collect(), &way, default, prefer);
        least = upto.saturating_add(1);
        let (way, upto) = (share.map(|_| way), (upto < u64::MAX).then_some(upto));
        if let Some(last) = advised.last_mut().filter(|last| last.way == way) {
            last.upto = upto;
            last.share = last.share.zip(share).map(|([a, b], [c, d])| [a.min(c), b.max(d)]);
        } else {
            let (pair, default) = (name_of(keys, sink_state), default.to_owned());
            advised.push(Advised { pair, upto, way, share, default });
        }
    }
    (!advised.is_empty()).then_some(advised)
}

/// Returns the smallest and largest cost of a method relative to the default over these sizes. `None` if the method is
/// the default, or if no size shows that the method costs less.
fn share(
    cells: &[&Cell],
    sizes: Vec<u64>,
    way: &TunedMethod,
    default: &str,
    prefer: Prefer,
) -> Option<[f64; 2]> {
    let mut shares = Vec::new();
    let mut is_shown = false;
    for size in sizes {
        let of = |name: &str, tuning: &Tuning| {
            let cells = cells.iter().copied();
            let own = cells.filter(|cell| cell.mechanism == name && cell.tuning == *tuning);
            MatchingCells::among(own, Some(size)).evidence(name, prefer)
        };
        let (own, other) = (of(&way.name, &way.tuning), of(default, &Tuning::default()));
        let (Some(own), Some(other)) = (own, other) else { continue };
        is_shown |= other.is_shown_to_cost_more(&own, prefer);
        shares.push(own.score(prefer) / other.score(prefer));
    }
    let is_other = way.name != default || !way.tuning.is_default();
    let least = shares.iter().copied().min_by(f64::total_cmp)?;
    let most = shares.iter().copied().max_by(f64::total_cmp)?;
    (is_other && is_shown).then_some([least, most])
}

fn name_of(keys: &EndKeys, state: SinkState) -> String {
    let over = match (state, keys.source.as_str()) {
        (SinkState::Fresh, _) | (_, FILL) => "",
        (SinkState::Resident, _) => " used before",
    };
    format!("{} -> {}{over}", keys.source, keys.sink)
}

/// Joins the pairs into a line; pairs with the same advice are grouped.
fn text(pairs: &[Vec<Advised>]) -> String {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for bands in pairs {
        let Some(first) = bands.first() else { continue };
        let words = words(bands);
        match said.iter_mut().find(|(known, _)| *known == words) {
            Some((_, names)) => names.push(&first.pair),
            None => said.push((words, vec![&first.pair])),
        }
    }
    let said = said.iter().map(|(words, names)| format!("{}: {words}", names.join(", ")));
    said.collect::<Vec<_>>().join("; ")
}

/// Returns text like `the default (read-write) up to 64K, splice beyond (0.40 to 0.52 times the cost of the default)`.
fn words(bands: &[Advised]) -> String {
    let mut text = String::new();
    for (n, band) in bands.iter().enumerate() {
        let way = match &band.way {
            Some(way) => way.to_string(),
            None => format!("the default ({})", band.default),
        };
        let upto = match band.upto {
            Some(upto) => format!(" up to {}", Size(upto)),
            None if n > 0 => " beyond".to_owned(),
            None => String::new(),
        };
        let share = band.share.map_or_else(String::new, |[least, most]| {
            if most - least < 0.005 {
                format!(" ({least:.2} times the cost of the default)")
            } else {
                format!(" ({least:.2} to {most:.2} times the cost of the default)")
            }
        });
        let comma = if n > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{way}{upto}{share}");
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use thalweg_core::profile::Ratio;

    /// Returns a cell of the method `way` between two ends. Its interval is from `ratio / wide` to `ratio * wide`.
    pub fn cell(ends: [&str; 2], way: &str, (size, ratio, wide): (u64, f64, f64)) -> Cell {
        let ratio = Ratio { ratio, lo: ratio / wide, hi: ratio * wide };
        let [source, sink] = ends.map(str::to_owned);
        let options = ends.map(|end| if end.starts_with("file") { "rw" } else { "" }.to_owned());
        Cell {
            source,
            sink,
            options,
            mechanism: way.to_owned(),
            tuning: Tuning::default(),
            size,
            load: Load::Idle,
            sink_state: SinkState::Fresh,
            wall: ratio,
            cpu: ratio,
            noise: 0.03,
            ns_per_byte: 0.5,
            memory: None,
            sessions: 6,
            rounds: 60,
            at: "2026-11-25T00:00:00Z".to_owned(),
            provisional: false,
        }
    }

    fn line(profile: &Profile, of: Of) -> TuneAdvice {
        let lines = advice(profile, Prefer::Wall);
        assert_eq!(lines.len(), 5);
        lines.into_iter().find(|line| line.of == of).unwrap()
    }

    #[test]
    fn where_nothing_was_measured_all_five_stay_with_the_default() {
        for line in advice(&Profile::new(), Prefer::Wall) {
            assert!(line.text.starts_with("not measured; the default applies"), "{}", line.text);
            assert!(line.text.contains("thalweg tune --pair") && line.bands.is_empty());
        }
    }

    #[test]
    fn what_is_surely_better_is_named_from_the_size_on_from_which_it_is() {
        let mut profile = Profile::new();
        let ends = ["file:ext4", "pipe"];
        for (size, ratio) in [(4 << 10, 2.0), (64 << 10, 1.5), (1 << 20, 0.5), (16 << 20, 0.4)] {
            profile.merge(vec![
                cell(ends, "read-write", (size, 1.0, 1.0)),
                cell(ends, "mmap-write", (size, ratio, 1.05)),
            ]);
        }
        let found = line(&profile, Of::Pipes);
        let [below, above] = &found.bands[..] else { panic!("{found:?}") };
        assert_eq!((below.way.as_ref(), below.default.as_str()), (None, "read-write"));
        assert!((64 << 10..1 << 20).contains(&below.upto.unwrap()));
        assert_eq!(
            (above.way.as_ref(), above.upto),
            (Some(&TunedMethod::plain("mmap-write")), None)
        );
        let [least, most] = above.share.unwrap();
        assert!((least - 0.4).abs() < 1e-9 && (most - 0.5).abs() < 1e-9);
        let beyond = "mmap-write beyond (0.40 to 0.50 times the cost of the default)";
        assert!(found.text.starts_with("file:ext4 -> pipe: the default (read-write) up to "));
        assert!(found.text.ends_with(beyond), "{}", found.text);
        assert!(line(&profile, Of::Files).text.starts_with("not measured"));
        // A mechanism whose interval overlaps that of the default is not shown to be better, even if its median is
        // lower.
        for one in profile.cells.iter_mut().filter(|cell| cell.mechanism == "mmap-write") {
            one.wall.hi = 1.1;
        }
        let found = line(&profile, Of::Pipes);
        assert_eq!(found.text, "file:ext4 -> pipe: the default (read-write)");
    }

    #[test]
    fn memory_and_processes_have_lines_of_their_own_kinds_of_ways() {
        let mut profile = Profile::new();
        let memory = ["memory", "memory"];
        for size in [64, 4096, 1 << 20] {
            profile.merge(vec![
                cell(memory, "libc", (size, 1.0, 1.0)),
                cell(memory, "simple", (size, if size > 4096 { 0.5 } else { 2.0 }, 1.02)),
            ]);
            let between = ["process", "process"];
            let resident = |cell: Cell| Cell { sink_state: SinkState::Resident, ..cell };
            let default = EndKeys::of(&cell(between, "x", (1, 1.0, 1.0)));
            let needs = Guarantees::COPIED;
            let (load, sink_state) = (Load::Idle, SinkState::Resident);
            let asked = AskedMethod { size, needs, prefer: Prefer::Wall, load, sink_state };
            let order = default.contest().without_profile(&default, &asked);
            profile.merge(vec![
                resident(cell(between, order[0], (size, 1.0, 1.0))),
                resident(cell(between, order[1], (size, 3.0, 1.02))),
            ]);
        }
        let memory = line(&profile, Of::Memory);
        assert!(memory.bands.iter().any(|band| band.way == Some(TunedMethod::plain("simple"))));
        assert_eq!(memory.bands[0].default, "libc");
        let processes = line(&profile, Of::Processes);
        assert!(processes.text.starts_with("process -> process used before: the default ("));
        assert!(processes.bands.iter().all(|band| band.way.is_none()), "{processes:?}");
    }

    #[test]
    fn pairs_of_which_the_same_is_said_share_the_words() {
        let mut profile = Profile::new();
        for sink in ["socket:inet", "socket:unix"] {
            let ends = ["file:ext4", sink];
            profile.merge(vec![
                cell(ends, "read-write", (1 << 20, 1.0, 1.0)),
                cell(ends, "sendfile", (1 << 20, 1.6, 1.01)),
            ]);
        }
        let found = line(&profile, Of::Sockets);
        let both = "file:ext4 -> socket:inet, file:ext4 -> socket:unix: the default (read-write)";
        assert_eq!(found.text, both);
    }
}
