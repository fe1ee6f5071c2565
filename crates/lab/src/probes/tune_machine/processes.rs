//! Two processes: a way is an arm of the channel, opened and sampled as the work `bulk` does it for
//! studies, and chosen as the channel does it for its users.

use std::{io, path::Path};
use thalweg_channel::bulk::{Destination, Facts, HUGE, LOAN, Options, PROCESS, choose};
use thalweg_core::{
    Profile, Unfit,
    profile::{Cell, SinkState},
};
use thalweg_sys::host::memory_available;

use super::{
    job::{EndKeys, Way},
    pair::{EndKind, Ends, Held},
    table::Asked,
};
use crate::{
    arms::{Arm, CATALOGUE, Job},
    scratch::Folder,
};

/// Where the two meet, and what they move.
pub(super) struct Processes {
    folder: Folder,
    source: &'static str,
    residency: &'static str,
    /// Bytes of a buffer.
    pub size: u64,
}

impl Processes {
    /// Nothing is started yet.
    pub fn new(ends: &Ends, state: SinkState) -> io::Result<Self> {
        let is_lent = ends.source == EndKind::Process(Held::Loan);
        let is_huge = ends.sink == EndKind::Process(Held::Huge);
        Ok(Self {
            folder: Folder::inside(&std::env::temp_dir())?,
            source: if is_lent { "born" } else { "private" },
            residency: match state {
                _ if is_huge => "huge",
                SinkState::Fresh => "fresh",
                SinkState::Resident => "resident",
            },
            size: 1,
        })
    }

    /// Whether so many ways can have buffers of this size at once: each may keep one of its own, at
    /// either side.
    pub fn has_room(size: u64, ways: usize) -> bool {
        let most = size.saturating_mul(2).saturating_mul(ways as u64);
        memory_available().is_none_or(|available| most <= available)
    }

    /// Has the two processes agree on an arm; looks at the bytes that arrive, and whether what is
    /// done to the source afterwards shows there.
    pub fn open(&self, way: &Way) -> Result<Box<dyn Arm>, Unfit> {
        let knobs = way.tuning.iter().map(|(knob, value)| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            (knob.to_owned(), toml::Value::Integer(value))
        });
        let mut with = toml::Table::new();
        for (name, word) in
            [("arm", &*way.name), ("source", self.source), ("residency", self.residency)]
        {
            with.insert(name.to_owned(), word.into());
        }
        with.insert("tuning".to_owned(), toml::Value::Table(knobs.collect()));
        let job = Job {
            arm: &way.name,
            with: &with,
            bytes: self.size,
            scratch: self.folder.path(),
            studies: self.folder.path(),
            // This very program, whatever its file is called by now.
            program: Path::new("/proc/self/exe"),
        };
        let work = CATALOGUE.arm_kind("bulk").ok_or_else(|| Unfit::because("not in this build"))?;
        let mut piece = work.open(&job)?;
        piece.warm_up()?;
        piece.check()?;
        Ok(piece)
    }
}

/// How a profile names such ends.
pub(super) fn keys(ends: &Ends) -> EndKeys {
    let source = if ends.source == EndKind::Process(Held::Loan) { LOAN } else { PROCESS };
    let sink = if ends.sink == EndKind::Process(Held::Huge) { HUGE } else { PROCESS };
    EndKeys { source: source.to_owned(), sink: sink.to_owned(), options: Default::default() }
}

/// Whether these are such ends.
pub(super) fn are_keys_of(keys: &EndKeys) -> bool {
    [PROCESS, LOAN].contains(&keys.source.as_str())
}

/// What a sender with this profile takes between such ends, if that was measured.
pub(super) fn choice(profile: &Profile, keys: &EndKeys, asked: &Asked) -> Option<Way> {
    let facts = Facts {
        destination: match (keys.sink.as_str(), asked.sink_state) {
            (HUGE, _) => Destination::FreshHuge,
            (_, SinkState::Fresh) => Destination::Fresh,
            (_, SinkState::Resident) => Destination::Resident,
        },
        will_loan: keys.source == LOAN,
        size: Some(asked.size),
        ..Facts::default()
    };
    let options = Options { needs: asked.needs, ..Options::default() };
    let plan = choose(&facts, &options, Some(profile));
    // The list goes on where nothing was measured; that is no choice to be judged.
    let best = plan.chosen().filter(|best| best.evidence.is_some())?;
    Some(Way { name: best.mechanism.to_owned(), tuning: best.tuning.clone() })
}

/// The cells between such ends.
pub(super) fn known<'p>(profile: &'p Profile, keys: &EndKeys) -> impl Iterator<Item = &'p Cell> {
    let cells = profile.cells.iter();
    cells.filter(move |cell| (&cell.source, &cell.sink) == (&keys.source, &keys.sink))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_those_that_the_channel_reads() {
        let named: Ends = "process:process".parse().unwrap();
        let all: Vec<EndKeys> = named.each().iter().map(keys).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|k| (&*k.source, &*k.sink)).collect();
        assert_eq!(all, [(PROCESS, PROCESS), (PROCESS, HUGE), (LOAN, PROCESS), (LOAN, HUGE)]);
        let memory = EndKeys { source: "memory".into(), ..EndKeys::default() };
        assert!(!are_keys_of(&memory) && are_keys_of(&keys(&"loan:huge".parse().unwrap())));
    }
}
