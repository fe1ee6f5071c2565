//! Plans for moving bodies, with few system calls. A thread queries the properties of file systems and sockets once,
//! and uses one plan for all sizes with the same candidates.

use std::{collections::HashMap, os::fd::BorrowedFd, sync::Arc};

use thalweg_core::{
    End, EndFacts, Facts, Guarantees, Kind, Plan, Profile, Request, plan::SizeBands, profile::Load,
};
use thalweg_sys::{Errno, io, net};

/// Rules for the choice of a mechanism.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The request to the planner.
    pub request: Request,
    /// The guarantees that the transferred bytes need.
    pub needs: Guarantees,
    /// The measured profile of this machine.
    pub profile: Option<Profile>,
}

/// Properties of an endpoint that are known without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KnownEnd {
    /// A file on this device. `is_sealed`: it can never change (`thalweg_core::is_sealed`). As a sink, the file is new.
    File { device: u64, is_sealed: bool },
    /// A TCP socket (`is_internet`) or a Unix socket.
    Socket { is_internet: bool },
    /// Standard input or output: a pipe, or any other kind that is not a socket.
    Standard(Kind),
}

impl KnownEnd {
    /// Writes some of the bytes. Never raises SIGPIPE for a socket.
    pub fn write(self, fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Socket { .. } => net::send(fd, bytes),
            Self::Standard(_) | Self::File { .. } => io::write(fd, bytes),
        }
    }

    /// Returns the kind of the endpoint.
    pub fn kind(self) -> Kind {
        match self {
            Self::File { .. } => Kind::File,
            Self::Socket { .. } => Kind::Socket,
            Self::Standard(kind) => kind,
        }
    }
}

/// An endpoint.
#[derive(Clone, Copy, Debug)]
pub struct KnownFd<'f> {
    pub known: KnownEnd,
    pub fd: BorrowedFd<'f>,
}

/// The plans of one thread, all made with one policy.
#[derive(Debug, Default)]
pub struct Plans {
    ends: HashMap<KnownEnd, EndFacts>,
    // The last part of the key is `true` if the machine is busy.
    made: HashMap<(KnownEnd, KnownEnd, bool), SizeBands>,
    /// Recent load of the thread.
    load: Load,
}

impl Plans {
    /// Sets the recent load of the thread. If it is [`Load::Loaded`], plans use the measurements of a busy machine.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// Discards the plans, because the policy has changed. The facts about endpoints remain valid.
    pub fn forget(&mut self) {
        self.made.clear();
    }

    /// Returns the plan for `len` bytes from `source` to `sink`.
    pub fn plan(
        &mut self,
        policy: &Policy,
        source: KnownFd<'_>,
        sink: KnownFd<'_>,
        len: u64,
    ) -> Arc<Plan> {
        // If the user has declared the machine busy, that applies regardless of this thread's load.
        let load = self.load.max(policy.request.load);
        let bands = self.made.entry((source.known, sink.known, load == Load::Loaded)).or_default();
        let ends = &mut self.ends;
        let mut end =
            |end: KnownFd<'_>| ends.entry(end.known).or_insert_with(|| facts(end)).clone();
        let facts =
            || Facts { source: end(source), sink: end(sink), len: None, needs: policy.needs };
        let request = Request { load, ..policy.request.clone() };
        bands.at(len, facts, &request, policy.profile.as_ref())
    }
}

/// Returns the facts that hold for all endpoints with these known properties.
fn facts(end: KnownFd<'_>) -> EndFacts {
    let known = end.known;
    match End::of(end.fd) {
        Ok(end) if matches!(known, KnownEnd::File { is_sealed: true, .. }) => EndFacts::of(&end),
        Ok(end) => EndFacts::of(&end).of_any_file(),
        Err(_) => EndFacts::MEMORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::fd::AsFd, os::unix::net::UnixStream};

    use proptest::prelude::*;
    use thalweg_core::{Transfer, profile::Cell};

    /// Measurements in which one mechanism wins for small sizes and another for large ones.
    fn profile(facts: &Facts) -> Profile {
        let (source, sink) = (facts.source.key(), facts.sink.key());
        let options = facts.source.options();
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
        fn a_kept_plan_has_the_ladder_of_that_size(
            lens in prop::collection::vec(1..1_u64 << 27, 1..6),
            shared in any::<bool>(),
            loads in prop::collection::vec(any::<bool>(), 6),
        ) {
            let place = tempfile::tempdir().unwrap();
            std::fs::write(place.path().join("file"), "text").unwrap();
            let file = std::fs::File::open(place.path().join("file")).unwrap();
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
                let source = KnownFd { known: KnownEnd::File { device: 1, is_sealed: false }, fd: file.as_fd() };
                let sink = KnownFd { known: KnownEnd::Socket { is_internet: false }, fd: socket.as_fd() };
                let kept = plans.plan(&policy, source, sink, *len);
                let facts = Facts { len: Some(*len), ..facts.clone() };
                let request = Request { load, ..policy.request.clone() };
                let made = Plan::make(&facts, &request, policy.profile.as_ref());
                let rungs = |plan: &Plan| -> Vec<_> {
                    let ladder = plan.ladder().into_iter();
                    ladder.map(|(rung, tuning)| (rung.info().name, tuning)).collect()
                };
                prop_assert_eq!(rungs(&kept), rungs(&made));
                prop_assert!(made.chosen().is_some_and(|chosen| chosen.evidence.is_some()));
            }
        }
    }
}
