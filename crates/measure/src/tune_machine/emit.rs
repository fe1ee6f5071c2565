//! Exports measured choices as constants for the source code of other projects: bands of sizes for each pair.

use std::fmt::Write;
use thalweg_core::{
    Guarantees, Prefer, Profile,
    profile::{FILL, Load, SinkState},
};

mod languages;

use super::{
    job::{EndKeys, TunedMethod},
    table::AskedMethod,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C11 and later.
    C,
    /// JSON, for generators of other languages.
    Json,
}

/// The table of one pair under one set of conditions.
struct BandTable {
    name: String,
    about: String,
    bands: Vec<(u64, TunedMethod)>,
}

/// Returns the constants with a header that describes the conditions. Empty tables are left out.
pub fn emit(profile: &Profile, prefer: Prefer, language: Language) -> String {
    let tables = tables(profile, prefer);
    let header = header(profile, prefer);
    match language {
        Language::C => languages::c(&header, &tables),
        Language::Json => languages::json(&header, &tables),
    }
}

fn header(profile: &Profile, prefer: Prefer) -> Vec<String> {
    let dates = profile.cells.iter().map(|cell| cell.at.as_str());
    let sessions = profile.cells.iter().map(|cell| cell.sessions);
    let mut lines = vec![
        "Measured by `thalweg tune`; written by `thalweg tune --emit`.".to_owned(),
        "These choices are valid only for this machine in this state:".to_owned(),
    ];
    let facts = profile.machine.iter();
    let key = facts.map(|(key, value)| format!("  {}: {}", plain(key), plain(value)));
    lines.extend(key);
    lines.push(format!(
        "measured {} to {}, sessions per figure: {} to {}",
        plain(dates.clone().min().unwrap_or("never")),
        plain(dates.max().unwrap_or("never")),
        sessions.clone().min().unwrap_or(0),
        sessions.max().unwrap_or(0),
    ));
    let what = match prefer {
        Prefer::Wall => "wall time",
        Prefer::Cpu => "CPU time",
        Prefer::Memory => "memory",
    };
    lines.push(format!("optimized for: {what}"));
    lines
}

/// Removes characters that could end a comment in C.
fn plain(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().map(kept).collect::<String>().replace("*/", "* /").replace('\\', "/")
}

fn tables(profile: &Profile, prefer: Prefer) -> Vec<BandTable> {
    let mut seen: Vec<(EndKeys, Load, SinkState)> = Vec::new();
    for cell in &profile.cells {
        let conditions = (EndKeys::of(cell).plain(), cell.load, cell.sink_state);
        if !seen.contains(&conditions) {
            seen.push(conditions);
        }
    }
    let mut tables: Vec<BandTable> = Vec::new();
    for (keys, load, sink_state) in seen {
        let mut copied = Vec::new();
        for needs in [Guarantees::COPIED, Guarantees::SHARED] {
            let asked = AskedMethod { size: 1, needs, prefer, load, sink_state };
            let bands = bands(profile, &keys, asked);
            if bands.is_empty() || bands == copied {
                continue;
            }
            copied.clone_from(&bands);
            let mut name = name_of(&keys, load, sink_state, !needs.stable);
            let again = tables.iter().filter(|t| t.name.starts_with(&name)).count();
            if again > 0 {
                let _ = write!(name, "_{}", again + 1);
            }
            let about = about(&keys, load, sink_state, !needs.stable);
            tables.push(BandTable { name, about, bands });
        }
    }
    tables
}

/// Returns the planner's choices in ascending order: the last size of each band, and the method. The last band has no
/// end.
pub(super) fn bands(
    profile: &Profile,
    keys: &EndKeys,
    asked: AskedMethod,
) -> Vec<(u64, TunedMethod)> {
    let of_ends = profile.cells.iter().filter(|cell| {
        EndKeys::of(cell).plain() == *keys
            && (cell.load, cell.sink_state) == (asked.load, asked.sink_state)
    });
    let mut sizes: Vec<u64> = of_ends.map(|cell| cell.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let at = |size: u64| keys.contest().choice(profile, keys, &AskedMethod { size, ..asked });
    let mut bands: Vec<(u64, TunedMethod)> = Vec::new();
    for (n, size) in sizes.iter().enumerate() {
        let Some(way) = at(*size) else { return Vec::new() };
        match bands.last_mut() {
            Some((upto, last)) if *last == way => *upto = *size,
            Some((upto, last)) => {
                *upto = last_size_of(last, sizes[n - 1], *size, &at);
                bands.push((*size, way));
            }
            None => bands.push((*size, way)),
        }
    }
    // Beyond the largest measured size, the last choice continues. Only for memory does the profile also determine the
    // choice there.
    let of_memory = ["memory", FILL].contains(&keys.source.as_str()) && keys.sink == "memory";
    let beyond = if of_memory { at(u64::MAX) } else { None };
    match (bands.last_mut(), beyond) {
        (Some((_, way)), Some(beyond)) if *way != beyond => bands.push((u64::MAX, beyond)),
        (Some((upto, _)), _) => *upto = u64::MAX,
        (None, _) => {}
    }
    bands
}

/// Finds by bisection the last size, between two measured ones, at which the planner chooses `way`.
fn last_size_of(
    way: &TunedMethod,
    mut low: u64,
    mut high: u64,
    at: &dyn Fn(u64) -> Option<TunedMethod>,
) -> u64 {
    while high - low > 1 {
        let middle = low.midpoint(high);
        if at(middle).as_ref() == Some(way) { low = middle } else { high = middle }
    }
    low
}

fn name_of(keys: &EndKeys, load: Load, state: SinkState, zero_copy: bool) -> String {
    let mut name = format!("{}_to_{}", keys.source, keys.sink);
    if state == SinkState::Resident {
        name.push_str("_resident");
    }
    if load == Load::Loaded {
        name.push_str("_loaded");
    }
    if zero_copy {
        name.push_str("_zero_copy");
    }
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(word).collect()
}

fn about(keys: &EndKeys, load: Load, state: SinkState, zero_copy: bool) -> String {
    let end = |key: &str, options: &str| match options {
        "" => plain(key),
        options => format!("{} ({})", plain(key), plain(options)),
    };
    let promise =
        if zero_copy { "the sink may share pages with the source" } else { "the sink gets a copy" };
    let (from, to) = (end(&keys.source, &keys.options[0]), end(&keys.sink, &keys.options[1]));
    format!("{from} -> {to}; {} sink, {} machine; {promise}", state.name(), load.name())
}

#[cfg(test)]
mod tests;
