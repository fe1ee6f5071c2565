//! One transfer by one mechanism, and the checks that follow every transfer.

use std::path::PathBuf;

use thalweg_core::{
    Cancelled, Driver, Facts, Guarantees, Info, Judgement, Kind, MECHANISMS, Mechanism, Outcome,
    Pair, Plan, Prefer, Role, Transfer, Tuning, Verdict, mechanisms::LAST_RESORT, plan::Turns,
};
use thalweg_sys::fault::{CallCounts, Script};

use crate::{
    ends::{Basin, Feed, Room, Streams, pattern},
    steps::{Hands, step_through},
};
use thalweg_testing::skip;

/// The requested length, relative to the size of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The size of the source.
    Exactly,
    /// No length: the transfer ends when the source ends.
    All,
    /// More bytes than the source has.
    More,
    /// Fewer bytes than the source has, so that some remain in it.
    Fewer,
}

/// The settings of one transfer.
#[derive(Clone)]
pub struct Case {
    pub mechanism: &'static dyn Mechanism,
    pub pair: Pair,
    pub tuning: Tuning,
    pub size: usize,
    pub ask: Ask,
    pub source_at: u64,
    pub sink_at: u64,
    pub room: Room,
    pub folder: PathBuf,
    pub streams: Streams,
    /// `true` if the source is a file opened with `O_APPEND`. Each byte of it can be read only
    /// once.
    pub once: bool,
    /// `true` if the watcher cancels the transfer at its first call.
    pub stop: bool,
    /// A second mechanism, which takes turns with `mechanism` and the last resort.
    pub beside: Option<&'static dyn Mechanism>,
}

pub struct Done {
    pub outcome: Outcome,
    pub calls: CallCounts,
    /// Bytes that a transfer without faults moves.
    pub due: u64,
}

/// Returns a plan with one mechanism. The driver adds the last resort.
pub fn plan_of(mechanism: &'static dyn Mechanism, tuning: &Tuning) -> Plan {
    let verdict = Verdict {
        mechanism: mechanism.info().name,
        tuning: tuning.clone(),
        judgement: Judgement::Chosen { why: "to be tested".to_owned() },
        evidence: None,
    };
    Plan { verdicts: vec![verdict], impossible: None, turns: None }
}

/// Bytes of a turn. Each mechanism has several turns, and bytes remain for the chosen one.
const TURN: u64 = 16 << 10;

/// Returns every mechanism that moves bytes.
pub fn movers() -> impl Iterator<Item = &'static dyn Mechanism> {
    MECHANISMS.iter().copied().filter(|m| m.info().role != Role::Harness)
}

/// Returns the names and paths in `THALWEG_MOUNTS="xfs=/path:btrfs=/path"`: additional file systems
/// to test. The name `small8` means a small file system that a test fills, and `block` a block
/// device that a test overwrites.
pub fn mounts() -> Vec<(String, PathBuf)> {
    let mounts = std::env::var("THALWEG_MOUNTS").unwrap_or_default();
    let mounts = mounts.split(':').filter_map(|mount| mount.split_once('='));
    mounts.map(|(name, path)| (name.to_owned(), path.into())).collect()
}

/// Returns the directories for test files: the temporary directory, one in memory, and those of
/// `THALWEG_MOUNTS`.
pub fn folders() -> Vec<PathBuf> {
    let mounts = mounts();
    if mounts.is_empty() {
        skip("file systems", "THALWEG_MOUNTS names none but the two always tried");
    }
    let folder =
        |(name, path): (String, PathBuf)| (name != "small8" && name != "block").then_some(path);
    let mounts = mounts.into_iter().filter_map(folder);
    let mut folders = vec![std::env::temp_dir(), PathBuf::from("/dev/shm")];
    folders.extend(mounts);
    folders.retain(|folder| {
        let usable = tempfile::tempfile_in(folder);
        if let Err(error) = &usable {
            skip(&folder.display().to_string(), &error.to_string());
        }
        usable.is_ok()
    });
    folders
}

impl Case {
    /// Creates a case with a small transfer between new endpoints. If the mechanism does not serve
    /// such endpoints, reports a skipped test with the reason and returns `None`.
    pub fn fitting(mechanism: &'static dyn Mechanism, pair: Pair, folder: PathBuf) -> Option<Self> {
        let mut case = Self {
            mechanism,
            pair,
            tuning: Tuning::default(),
            size: 1,
            ask: Ask::Exactly,
            source_at: 0,
            sink_at: 0,
            room: Room::AtTheEnd,
            folder,
            streams: Streams { internet: false, by_hand: false },
            once: false,
            stop: false,
            beside: None,
        };
        let Err(unfit) = case.fits() else { return Some(case) };
        case.streams.internet = true;
        if case.fits().is_ok() {
            return Some(case);
        }
        let (name, Pair { source, sink, .. }) = (mechanism.info().name, pair);
        skip(&format!("{name} {source} -> {sink}"), &unfit);
        None
    }

    /// Returns up to two variants of this case: one for [`Driver::run`], and one for a run by
    /// steps. The second is omitted if the mechanism waits inside a step.
    pub fn in_both_forms(&self) -> impl Iterator<Item = Self> {
        let by_hand = Streams { by_hand: true, ..self.streams };
        let by_steps = Self { streams: by_hand, ..self.clone() };
        let sleeps = self.mechanism.info().nature.waits.is_some();
        [Some(self.clone()), (!sleeps).then_some(by_steps)].into_iter().flatten()
    }

    /// Returns this case with turns between its mechanism and the next one in the list that serves
    /// these endpoints. `None` if the endpoints are not two files.
    pub fn by_turns(&self) -> Option<Self> {
        let Pair { source, sink, .. } = self.pair;
        let own = self.mechanism.info().name;
        let last = LAST_RESORT.info().name;
        let following = movers().skip_while(|m| m.info().name != own).skip(1).chain(movers());
        let mut others = following.filter(|m| m.info().name != own && m.info().name != last);
        // A stepwise run excludes mechanisms that wait, and its report lists them as fallbacks.
        let serves = |info: &Info| info.pair(source, sink).is_some() && info.nature.waits.is_none();
        let beside = others.find(|m| serves(m.info()));
        let both_are_files = (source, sink) == (Kind::File, Kind::File);
        both_are_files.then(|| Self { beside, ..self.clone() })
    }

    /// Returns `true` if the mechanism of this name may move bytes even if no call failed.
    pub fn may_move(&self, name: &str) -> bool {
        name == self.mechanism.info().name
            || self.beside.is_some_and(|beside| beside.info().name == name)
            || self.beside.is_some() && name == LAST_RESORT.info().name
    }

    fn plan(&self) -> Plan {
        let turns = self.beside.map(|beside| {
            let mut among = vec![beside.info().name, LAST_RESORT.info().name];
            if !among.contains(&self.mechanism.info().name) {
                among.insert(0, self.mechanism.info().name);
            }
            let (len, prefer) = (self.size as u64, Prefer::Wall);
            Turns { among, piece: TURN, len, prefer, promise: None, doubted: None }
        });
        Plan { turns, ..plan_of(self.mechanism, &self.tuning) }
    }

    fn fits(&self) -> Result<(), String> {
        let (from, mut to) = self.ends();
        let transfer = transfer(&from, &mut to, Some(1));
        self.mechanism.fits(&Facts::of(&transfer)).map_err(|unfit| unfit.reason)
    }

    fn ends(&self) -> (Feed, Basin) {
        let (folder, streams) = (&self.folder, self.streams);
        let bytes = pattern(self.size);
        let from = Feed::new(self.pair.source, bytes, self.source_at, folder, streams);
        let from = if self.once { from.once() } else { from };
        let place = (self.sink_at, self.room);
        (from, Basin::new(self.pair.sink, self.size, place, folder, streams))
    }

    /// Returns the requested length. An endless source always needs one.
    fn len(&self) -> Option<u64> {
        let size = self.size as u64;
        let endless = self.pair.source == Kind::Device && self.pair.sink != Kind::Memory;
        match self.ask {
            Ask::Fewer => Some(size.saturating_sub(77)),
            Ask::Exactly => Some(size),
            Ask::All | Ask::More if endless => Some(size),
            Ask::All => None,
            Ask::More => Some(size + 10_000),
        }
    }

    /// Returns a name that contains all settings, so that a failed case can be repeated.
    pub fn name(&self) -> String {
        format!(
            "{} {} -> {} [{}] size {} {:?} at {} -> {} {:?} in {}{}",
            self.mechanism.info().name,
            self.pair.source,
            self.pair.sink,
            self.tuning,
            self.size,
            self.ask,
            self.source_at,
            self.sink_at,
            self.room,
            self.folder.display(),
            match (self.beside, self.streams.by_hand) {
                (Some(beside), _) => format!(" by turns with {}", beside.info().name),
                (None, true) => " by steps".to_owned(),
                (None, false) => String::new(),
            },
        )
    }

    /// Runs the case under a script of faults, and makes the checks that every result must pass.
    pub fn run(&self, script: &Script) -> Done {
        let (mut from, mut to) = self.ends();
        let len = self.len();
        let plan = self.plan();
        let (mut feeding, mut taking) = (from.hand.take(), to.hand.take());
        let ran = {
            let mut transfer = transfer(&from, &mut to, len);
            let flow = if self.stop { Err(Cancelled) } else { Ok(()) };
            if self.streams.by_hand {
                let hands = Hands { feeding: feeding.as_mut(), taking: taking.as_mut() };
                let name = self.name();
                script.run(|| step_through(transfer, &plan, hands, self.stop, &name))
            } else {
                script.run(|| Driver::default().run(&mut transfer, &plan, &mut |_| flow))
            }
        };
        (from.hand, to.hand) = (feeding, taking);
        let outcome = ran.value;
        let report = &outcome.report;
        let name = || format!("{}\n under {script:?}\n gave {outcome:?}", self.name());
        let due = len.unwrap_or(u64::MAX).min(from.bytes().len() as u64);
        assert!(report.bytes <= due, "more than there is: {}", name());
        assert!(self.stop || !outcome.stopped, "nobody asked to stop: {}", name());
        if outcome.stopped {
            assert!(outcome.error.is_none(), "stopping is no error: {}", name());
        } else if let Some(error) = &outcome.error {
            assert_eq!(error.moved, report.bytes, "the error's count: {}", name());
        } else {
            assert_eq!(report.lost, 0, "success loses nothing: {}", name());
        }
        let shares: u64 = report.shares.iter().map(|share| share.bytes).sum();
        assert_eq!(shares, report.bytes, "the shares add up: {}", name());
        let left = report.shares.iter().any(|share| !self.may_move(share.mechanism));
        assert!(!left || !report.steps_down.is_empty(), "left without a word: {}", name());
        let moved = report.bytes as usize;
        let bytes = from.bytes().to_vec();
        let waits = report.shares.iter().any(|share| share.mechanism == "msg-zerocopy");
        let checked = if outcome.stopped && waits {
            to.check_acknowledged(&bytes, moved)
        } else {
            to.check(&bytes, moved, outcome.error.is_some() || outcome.stopped)
        };
        if let Err(wrong) = checked {
            panic!("{wrong}: {}", name());
        }
        if let Some(rest) = from.left() {
            let kept = bytes.len() - rest.len();
            let gone = moved + report.lost as usize;
            assert!(bytes.ends_with(&rest) && kept == gone, "taken {kept}: {}", name());
        }
        Done { due, calls: ran.calls, outcome }
    }
}

fn transfer<'a>(from: &'a Feed, to: &'a mut Basin, len: Option<u64>) -> Transfer<'a> {
    Transfer { source: from.source(), sink: to.sink(), len, needs: Guarantees::SHARED }
}
