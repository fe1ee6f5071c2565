//! Plans for bodies, without the calls that a plan costs: what the kernel says of a file system and of a
//! socket is asked once, and a plan is made once for a size.

use std::{collections::HashMap, os::fd::AsFd, sync::Arc};

use thalweg_core::{End, EndFacts, Facts, Guarantees, Plan, Profile, Request};

use super::opened::Opened;

/// How to choose.
#[derive(Debug)]
pub struct Policy {
    pub request: Request,
    pub needs: Guarantees,
    pub profile: Option<Profile>,
}

/// The plans of one worker.
#[derive(Debug, Default)]
pub struct Plans {
    files: HashMap<u64, EndFacts>,
    // By whether it is an internet socket.
    sockets: HashMap<bool, EndFacts>,
    made: HashMap<(u64, bool, u64), Arc<Plan>>,
}

// A folder of more large files makes the plans anew, now and then.
const MOST_PLANS: usize = 1024;

impl Plans {
    /// The plan for so many bytes of a file into a socket.
    pub fn plan(
        &mut self,
        policy: &Policy,
        file: &Opened,
        (socket, is_internet): (impl AsFd, bool),
        len: u64,
    ) -> Arc<Plan> {
        let device = file.version.device();
        if let Some(plan) = self.made.get(&(device, is_internet, len)) {
            return Arc::clone(plan);
        }
        let source = self.files.entry(device).or_insert_with(|| facts(file));
        let sink = self.sockets.entry(is_internet).or_insert_with(|| facts(&socket));
        let facts = Facts {
            source: source.clone(),
            sink: sink.clone(),
            len: Some(len),
            needs: policy.needs,
        };
        let plan = Arc::new(Plan::make(&facts, &policy.request, policy.profile.as_ref()));
        if self.made.len() >= MOST_PLANS {
            self.made.clear();
        }
        self.made.insert((device, is_internet, len), Arc::clone(&plan));
        plan
    }
}

/// What holds of every such end. That one file of many can never change says nothing of the others.
fn facts(fd: &impl AsFd) -> EndFacts {
    match End::of(fd.as_fd()) {
        Ok(end) => EndFacts { unchanging: false, ..EndFacts::of(&end) },
        Err(_) => EndFacts::MEMORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixStream, path::Path};

    use proptest::prelude::*;
    use thalweg_core::{Transfer, profile::Cell};

    use crate::server::open::{Follow, Found, Root};

    /// Cells in which one mechanism wins the small sizes and another one the large.
    fn profile(facts: &Facts) -> Profile {
        let (source, sink) = (facts.source.key(), facts.sink.key());
        let options = facts.source.fs.as_ref().map(|fs| fs.options.clone()).unwrap_or_default();
        let cell = |(mechanism, size, ratio): (&str, u64, f64)| -> Cell {
            let ratio = serde_json::json!({ "ratio": ratio, "lo": ratio, "hi": ratio });
            let cell = serde_json::json!({
                "source": source, "sink": sink, "options": [options, ""], "mechanism": mechanism,
                "tuning": {}, "size": size, "load": "idle", "wall": ratio, "cpu": ratio, "noise": 0.03,
                "ns_per_byte": 1.0, "sessions": 3, "rounds": 9, "at": "2026-11-24T00:00:00Z",
            });
            serde_json::from_value(cell).unwrap()
        };
        let cells = [
            ("read-write", 1 << 16, 1.0),
            ("read-write", 1 << 26, 1.0),
            ("io-uring", 1 << 16, 0.5),
            ("io-uring", 1 << 26, 2.0),
            ("sendfile", 1 << 16, 3.0),
            ("sendfile", 1 << 26, 0.3),
        ];
        Profile { cells: cells.map(cell).into(), ..Profile::default() }
    }

    proptest! {
        #[test]
        fn a_kept_plan_is_the_plan_of_that_size(
            lens in prop::collection::vec(1..1_u64 << 27, 1..6),
            shared in any::<bool>(),
        ) {
            let place = tempfile::tempdir().unwrap();
            std::fs::write(place.path().join("file"), "text").unwrap();
            let root = Root::open(place.path(), Follow::None).unwrap();
            let Ok(Found::File(file)) = root.find(Path::new("file"), None) else { panic!() };
            let (socket, _peer) = UnixStream::pair().unwrap();
            let mut transfer = Transfer::between(&file, &socket).unwrap();
            transfer.needs = if shared { Guarantees::SHARED } else { Guarantees::COPIED };
            let facts = Facts::of(&transfer);
            let policy = Policy {
                request: Request { stepwise: true, ..Request::default() },
                needs: transfer.needs,
                profile: Some(profile(&facts)),
            };
            let mut plans = Plans::default();
            for len in lens.iter().chain(&lens) {
                let kept = plans.plan(&policy, &file, (&socket, false), *len);
                let facts = Facts { len: Some(*len), ..facts.clone() };
                let made = Plan::make(&facts, &policy.request, policy.profile.as_ref());
                let text = |plan: &Plan| serde_json::to_string(plan).unwrap();
                prop_assert_eq!(text(&kept), text(&made));
                prop_assert!(made.chosen().is_some_and(|chosen| chosen.evidence.is_some()));
            }
        }
    }
}
