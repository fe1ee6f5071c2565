//! Runs studies: sessions in turn, each in a fresh process, spread over time; then combines their results.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};
use thalweg_core::{Cancelled, cadence::CANCEL_CHECK};

use super::{
    conditions::conditions_of,
    eta::{ConditionTime, Eta, guess},
    evaluation,
    messages::{SessionEvent, SessionJob, SessionLog},
    result::{Condition, Protocol, StudyResult, StudyText},
    settings::Settings,
    store::Loaded,
    unfinished::{SavedSession, UnfinishedRun},
};
use crate::arms::volume::Volume;
use thalweg_measure::{
    conditions::{self, Conditions},
    process,
    schedule::SampleFailure,
    scratch::ScratchFolder,
    session::{self, SessionPatience},
    stats::Random,
};

/// The environment of a run.
pub struct RunStage<'s> {
    /// The thalweg binary; `PROGRAM helper session` runs a session.
    pub program: &'s Path,
    /// A directory on the file system under test. A hidden directory is created in it and removed afterwards.
    pub at: &'s Path,
    /// Called several times per second.
    pub stop: &'s dyn Fn() -> Result<(), Cancelled>,
    pub watch: &'s mut dyn FnMut(&StudyProgress<'_>),
    /// The directory in which sessions are saved until the run is finished; `None` to save nothing.
    pub unfinished: Option<&'s Path>,
}

/// The progress of a run.
#[derive(Clone, Debug)]
pub struct StudyProgress<'p> {
    pub study: &'p str,
    /// The current session, from 1, and the number of sessions.
    pub session: [usize; 2],
    /// The current condition; `None` between sessions.
    pub place: Option<&'p Condition>,
    /// Finished rounds under that condition, and the number of rounds.
    pub round: [usize; 2],
    /// Throughput of each arm (a compared variant) in that round, in 10^9 bytes per second.
    pub rates: &'p [(String, f64)],
    /// The finished fraction of the whole run.
    pub done: f64,
    /// Estimated remaining time.
    pub left: Duration,
}

/// The reason why a study has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An arm delivered wrong bytes, or its verification did not end.
    #[error(
        "study {study}, variant {arm}, {at}, session {session}: verification failed: {reason}; this run has no result"
    )]
    Wrong {
        study: String,
        arm: String,
        at: String,
        /// The session, from 1.
        session: usize,
        reason: String,
    },
    #[error("study {study}, session {session}: {reason}")]
    Session {
        study: String,
        /// The session, from 1.
        session: usize,
        reason: String,
    },
    /// The settings name cells or sizes that the study does not have.
    #[error("{0}")]
    Settings(String),
    /// The caller asked to stop. An incomplete run has no result, because nothing can be decided from it.
    #[error("stopped: an incomplete run has no result")]
    Cancelled(#[from] Cancelled),
}

/// Runs the studies, one session of each in turn. The results are in the order of the studies. If one study fails,
/// the others continue.
pub fn run(
    studies: &[Loaded],
    settings: &Settings,
    stage: &mut RunStage<'_>,
) -> Vec<Result<StudyResult, RunError>> {
    let courses = studies.iter().map(|loaded| Course::new(loaded, settings, stage)).collect();
    let mut run = StudyRun { courses, settings, stage, began: Instant::now() };
    for session in 0..settings.sessions {
        for number in 0..run.courses.len() {
            let course = &run.courses[number];
            if course.failed.is_some() || session < course.logs.len() {
                continue;
            }
            let done = run.wait(number).and_then(|()| run.session(number, session));
            let Err(error) = done else { continue };
            let stopped = matches!(error, RunError::Cancelled(_));
            if matches!(error, RunError::Wrong { .. }) {
                run.courses[number].discard_sessions();
            }
            run.courses[number].failed = Some(error);
            for course in run.courses.iter_mut().filter(|_| stopped) {
                course.failed.get_or_insert(Cancelled.into());
            }
        }
    }
    run.courses.into_iter().map(|course| course.result(settings)).collect()
}

/// The state of a run of several studies.
struct StudyRun<'r, 's> {
    courses: Vec<Course<'r>>,
    settings: &'r Settings,
    stage: &'r mut RunStage<'s>,
    began: Instant,
}

impl StudyRun<'_, '_> {
    /// Waits until the pause after the study's last session is over.
    fn wait(&mut self, number: usize) -> Result<(), RunError> {
        let Some(ended) = self.courses[number].ended else { return Ok(()) };
        while ended.elapsed() < self.settings.pause {
            (self.stage.stop)()?;
            self.report(number, None, 0, &[]);
            let rest = self.settings.pause.saturating_sub(ended.elapsed());
            thread::sleep(rest.min(CANCEL_CHECK));
        }
        Ok(())
    }

    fn session(&mut self, number: usize, session: usize) -> Result<(), RunError> {
        let (settings, at, stop) = (self.settings, self.stage.at, self.stage.stop);
        let course = &mut self.courses[number];
        let study = course.loaded.study.id.clone();
        let broken = |reason: String| RunError::Session {
            study: study.clone(),
            session: session + 1,
            reason,
        };
        let scratch = ScratchFolder::named(at, "study");
        let scratch = scratch.map_err(|e| broken(format!("{}: {e}", at.display())))?;
        if course.first.is_none() {
            course.start(at);
        }
        let job = SessionJob {
            session,
            text: course.loaded.text.clone(),
            folder: course.loaded.beside(),
            scratch: scratch.path().to_owned(),
            program: self.stage.program.to_owned(),
            rounds: settings.rounds,
            sample_seconds: settings.sample.as_secs_f64(),
            seed: course.random.bits(),
            pinned: settings.pinned.clone(),
            places: course.places.clone(),
        };
        course.eta.session();
        let command = process::helper(&job.program, "session");
        let done = session::run(command, &job, SessionPatience::DISPOSABLE, stop, &mut |event| {
            match event {
                SessionEvent::Place { place } => {
                    self.courses[number].eta.begin_condition(place);
                    self.report(number, Some(place), 0, &[]);
                }
                SessionEvent::Round { place, done, rates } => {
                    self.report(number, Some(place), done, &rates);
                }
                SessionEvent::Wrong { arm, place, reason } => {
                    let at = format!("{} {} {}", place.cell, place.size, place.load.name());
                    let (study, session) = (study.clone(), session + 1);
                    return Some(Err(RunError::Wrong { study, arm, at, session, reason }));
                }
                SessionEvent::Done { log } => return Some(Ok(log)),
            }
            None
        });
        Volume::remove_all_beside(scratch.path());
        let course = &mut self.courses[number];
        course.eta.session_done();
        course.ended = Some(Instant::now());
        let done = done.or_else(|failure: SampleFailure| Err(broken(failure.unfit()?.reason)))?;
        course.logs.push(done?);
        course.save_session(settings);
        Ok(())
    }

    /// Reports progress: the condition that is being measured, its round, and the throughput of each arm.
    fn report(
        &mut self,
        number: usize,
        place: Option<usize>,
        round: usize,
        rates: &[(String, f64)],
    ) {
        let (course, settings) = (&self.courses[number], self.settings);
        let left = self.left(course);
        let spent = self.began.elapsed().as_secs_f64();
        let session = settings.sessions - course.eta.sessions_left();
        (self.stage.watch)(&StudyProgress {
            study: &course.loaded.study.id,
            session: [session, settings.sessions],
            place: place.and_then(|place| course.places.get(place)),
            round: [round, settings.rounds],
            rates,
            done: spent / (spent + left.as_secs_f64()).max(1e-9),
            left,
        });
    }

    /// Returns the remaining time: all remaining sessions, plus the part of this study's pauses that other sessions
    /// do not fill.
    fn left(&self, course: &Course<'_>) -> Duration {
        let going = || self.courses.iter().filter(|course| course.failed.is_none());
        // The user can set an arbitrarily long pause, so the sums saturate.
        let lefts = going().map(|course| course.eta.left());
        let work = lefts.fold(Duration::ZERO, Duration::saturating_add);
        let ahead = course.eta.sessions_left() as u32;
        // Sessions of other studies run during the pauses of this one.
        let per_turn = work.checked_div(self.settings.sessions.max(1) as u32).unwrap_or_default();
        let of_others = if going().count() > 1 { per_turn } else { Duration::ZERO };
        let pause = self.settings.pause.saturating_sub(of_others);
        work.saturating_add(pause.saturating_mul(ahead))
    }
}

/// The state of one study in a run.
struct Course<'c> {
    loaded: &'c Loaded,
    places: Vec<Condition>,
    eta: Eta,
    random: Random,
    began: String,
    /// The start of this command's first session.
    first: Option<Instant>,
    /// The end of this command's last session.
    ended: Option<Instant>,
    conditions: serde_json::Value,
    /// Wall time of the earlier commands that this run continues, in seconds.
    earlier_seconds: f64,
    unfinished: Option<UnfinishedRun>,
    logs: Vec<SessionLog>,
    failed: Option<RunError>,
}

impl<'c> Course<'c> {
    fn new(loaded: &'c Loaded, settings: &Settings, stage: &RunStage<'_>) -> Self {
        let (places, failed) = match conditions_of(&loaded.study, settings) {
            Ok(places) => (places, None),
            Err(reason) => (Vec::new(), Some(RunError::Settings(reason))),
        };
        let unfinished = stage
            .unfinished
            .map(|root| UnfinishedRun::of(root, loaded, settings, stage.program, stage.at));
        let saved = unfinished.as_ref().map(|run| run.sessions(Some(settings.seed)));
        let mut saved = saved.unwrap_or_default();
        saved.truncate(settings.sessions);
        // Studies with the same seed should still have different random orders.
        let mix = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        let name = loaded.study.id.bytes().fold(0, mix);
        let mut random = Random::new(settings.seed ^ name);
        // The remaining sessions use the seeds that they would have used without the interruption.
        for _ in &saved {
            random.bits();
        }
        let left = settings.sessions - saved.len();
        let times = places.iter().map(|place| {
            let cell = loaded.study.cell(&place.cell);
            let seconds = match saved.last() {
                Some(last) => last.log.seconds_of(place),
                None => cell.map_or(0.0, |cell| guess(cell, place, settings)),
            };
            let most = cell.and_then(|cell| cell.sessions).unwrap_or(usize::MAX);
            let sessions_left = left.min(most.saturating_sub(saved.len()));
            ConditionTime { seconds, sessions_left, is_pending: false }
        });
        let mut course = Self {
            eta: Eta::new(times.collect(), left),
            places,
            loaded,
            random,
            began: conditions::now(),
            first: None,
            ended: None,
            conditions: serde_json::Value::Null,
            earlier_seconds: 0.0,
            unfinished,
            logs: Vec::new(),
            failed,
        };
        for session in saved {
            (course.began, course.conditions) = (session.began, session.conditions);
            course.earlier_seconds = session.took_seconds;
            course.logs.push(session.log);
        }
        course
    }

    /// Records the start of the first session of this command.
    fn start(&mut self, at: &Path) {
        self.first = Some(Instant::now());
        if self.logs.is_empty() {
            self.began = conditions::now();
            self.conditions = serde_json::to_value(Conditions::now(&[at])).unwrap_or_default();
        }
    }

    /// Returns the wall time of all sessions and the pauses between them, in seconds.
    fn took_seconds(&self) -> f64 {
        let now =
            self.first.zip(self.ended).map_or(0.0, |(first, end)| (end - first).as_secs_f64());
        self.earlier_seconds + now
    }

    /// Removes the saved sessions: after wrong bytes, no session of this run may become part of a result.
    fn discard_sessions(&self) {
        if let Some(unfinished) = &self.unfinished {
            // If this fails, the next run detects the wrong bytes again.
            let _ = unfinished.remove();
        }
    }

    /// Saves the last session, so that a later command can continue the run. If saving fails, only this command can
    /// finish the run, and it saves no further sessions.
    fn save_session(&mut self, settings: &Settings) {
        let (Some(unfinished), Some(log)) = (&self.unfinished, self.logs.last()) else { return };
        let saved = unfinished.save(&SavedSession {
            began: self.began.clone(),
            seed: settings.seed,
            conditions: self.conditions.clone(),
            took_seconds: self.took_seconds(),
            log: log.clone(),
        });
        self.unfinished = self.unfinished.take().filter(|_| saved.is_ok());
    }

    fn result(self, settings: &Settings) -> Result<StudyResult, RunError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let took = self.took_seconds();
        let protocol = Protocol {
            preset: settings.preset.clone(),
            sessions: settings.sessions,
            rounds: settings.rounds,
            pause_seconds: settings.pause.as_secs_f64(),
            sample_seconds: settings.sample.as_secs_f64(),
            seed: settings.seed,
            pinned: settings.pinned.clone(),
            command: settings.command.clone(),
            began: self.began,
            took_seconds: took,
            extensions: Vec::new(),
        };
        let hash = self.loaded.hash();
        let result =
            evaluation::result_of(&self.loaded.study, self.logs, protocol, self.conditions);
        Ok(StudyResult {
            text: Some(StudyText { ran: Some(hash.clone()), judged: hash }),
            ..result
        })
    }
}
