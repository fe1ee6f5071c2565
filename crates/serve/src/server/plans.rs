//! Plans for bodies, without the calls that a plan costs: what the kernel says of a file system and of a
//! socket is asked once, and a plan is made once for a size.

use std::{collections::HashMap, os::fd::AsFd, sync::Arc};

use thalweg_core::{End, EndFacts, Facts, Guarantees, Plan, Profile, Request};

use super::open::Opened;

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
