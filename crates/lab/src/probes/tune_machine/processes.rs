//! Two processes: a way is an arm of the channel, opened and sampled as the work `bulk` does it for
//! studies, and chosen as the channel does it for its users.

use std::{io, path::Path};
use thalweg_channel::bulk::{Destination, Facts, HUGE, LOAN, Options, PROCESS, choose};
use thalweg_core::{
    Profile, Unfit,
    profile::{Cell, SinkState},
};

use super::{
    job::{EndKeys, Way},
    pair::{EndKind, Ends, Held},
    table::Asked,
};
use crate::{
    arms::{
        Arm, Job,
        bulk::{From, With, landing::Residency},
    },
    scratch::Folder,
};

/// Where the two meet, and what they move.
pub(super) struct Processes {
    folder: Folder,
    /// Where the bytes come from, and where they land.
    memory: (From, Residency),
    /// Bytes of a buffer.
    pub size: u64,
}

impl Processes {
    /// Nothing is started yet.
    pub fn new(ends: &Ends, state: SinkState) -> io::Result<Self> {
        let is_lent = ends.source == EndKind::Process(Held::Loan);
        let source = if is_lent { From::Born } else { From::Private };
        let residency = match (&ends.sink, state) {
            (EndKind::Process(Held::Huge), _) => Residency::Huge,
            (_, SinkState::Fresh) => Residency::Fresh,
            (_, SinkState::Resident) => Residency::Resident,
        };
        Ok(Self {
            folder: Folder::inside(&std::env::temp_dir())?,
            memory: (source, residency),
            size: 1,
        })
    }

    /// Has the two processes agree on an arm; looks at the bytes that arrive, and whether what is
    /// done to the source afterwards shows there.
    pub fn open(&self, way: &Way) -> Result<Box<dyn Arm>, Unfit> {
        let job = Job {
            arm: &way.name,
            with: &toml::Table::new(),
            bytes: self.size,
            scratch: self.folder.path(),
            studies: self.folder.path(),
            // This very program, whatever its file is called by now.
            program: Path::new("/proc/self/exe"),
        };
        let mut arm = With::of_arm(&way.name, way.tuning.clone(), self.memory).open(&job)?;
        arm.warm_up()?;
        arm.check()?;
        Ok(arm)
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
