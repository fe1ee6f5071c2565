//! Plans for bodies, without the calls that a plan costs: what the kernel says of a file system and of a
//! socket is asked once, and a plan is made once for a size.

use std::{collections::HashMap, os::fd::AsFd, sync::Arc};

use thalweg_core::{End, EndFacts, Facts, Guarantees, Plan, Profile, Request, profile::Load};

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
    // By device, whether it is an internet socket, size, and whether the machine is busy.
    made: HashMap<(u64, bool, u64, bool), Arc<Plan>>,
    /// How busy the worker is.
    load: Load,
}

// A folder of more large files makes the plans anew, now and then.
const MOST_PLANS: usize = 1024;

impl Plans {
    /// Says how busy the worker was of late: then plans go by what was measured on a busy machine.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// The plan for so many bytes of a file into a socket.
    pub fn plan(
        &mut self,
        policy: &Policy,
        file: &Opened,
        (socket, is_internet): (impl AsFd, bool),
        len: u64,
    ) -> Arc<Plan> {
        let device = file.version.device();
        // What a person said of the machine holds, whatever this worker does.
        let load = self.load.max(policy.request.load);
        let key = (device, is_internet, len, load == Load::Loaded);
        if let Some(plan) = self.made.get(&key) {
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
        let request = Request { load, ..policy.request.clone() };
        let plan = Arc::new(Plan::make(&facts, &request, policy.profile.as_ref()));
        if self.made.len() >= MOST_PLANS {
            self.made.clear();
        }
        self.made.insert(key, Arc::clone(&plan));
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
        let cell = |(mechanism, size, ratio, load): (&str, u64, f64, &str)| -> Cell {
            let ratio = serde_json::json!({ "ratio": ratio, "lo": ratio, "hi": ratio });
            let cell = serde_json::json!({
                "source": source, "sink": sink, "options": [options, ""], "mechanism": mechanism,
                "tuning": {}, "size": size, "load": load, "wall": ratio, "cpu": ratio, "noise": 0.03,
                "ns_per_byte": 1.0, "sessions": 3, "rounds": 9, "at": "2026-11-24T00:00:00Z",
            });
            serde_json::from_value(cell).unwrap()
        };
        let cells = [
            ("read-write", 1 << 16, 1.0, "idle"),
            ("read-write", 1 << 26, 1.0, "idle"),
            ("io-uring", 1 << 16, 0.5, "idle"),
            ("io-uring", 1 << 26, 2.0, "idle"),
            ("sendfile", 1 << 16, 3.0, "idle"),
            ("sendfile", 1 << 26, 0.3, "idle"),
            ("read-write", 1 << 16, 1.0, "loaded"),
            ("read-write", 1 << 26, 1.0, "loaded"),
            ("io-uring", 1 << 16, 3.0, "loaded"),
            ("io-uring", 1 << 26, 0.2, "loaded"),
        ];
        Profile { cells: cells.map(cell).into(), ..Profile::default() }
    }

    proptest! {
        #[test]
        fn a_kept_plan_is_the_plan_of_that_size(
            lens in prop::collection::vec(1..1_u64 << 27, 1..6),
            shared in any::<bool>(),
            loads in prop::collection::vec(any::<bool>(), 6),
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
            for (len, is_loaded) in lens.iter().chain(&lens).zip(loads.iter().cycle()) {
                let load = if *is_loaded { Load::Loaded } else { Load::Idle };
                plans.set_load(load);
                let kept = plans.plan(&policy, &file, (&socket, false), *len);
                let facts = Facts { len: Some(*len), ..facts.clone() };
                let request = Request { load, ..policy.request.clone() };
                let made = Plan::make(&facts, &request, policy.profile.as_ref());
                let text = |plan: &Plan| serde_json::to_string(plan).unwrap();
                prop_assert_eq!(text(&kept), text(&made));
                prop_assert!(made.chosen().is_some_and(|chosen| chosen.evidence.is_some()));
            }
        }
    }
}
