//! Scripted faults: the calls that fail, and the effect. Compiled only with the feature `faults`.

use super::Call;
use crate::Errno;
use std::cell::RefCell;
use std::ops::Index;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CALLS: usize = Call::ALL.len();

/// The effect of a rule on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The real call is made with at most this many bytes (at least 1).
    Short(usize),
    /// The call is not made and fails with this errno.
    Errno(Errno),
    /// The call is not made and returns 0.
    Zero,
}

/// A fault. The first matching rule of a script applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The call that the rule concerns.
    pub call: Call,
    /// The number of the call, counted from 1 over all threads of the script.
    pub nth: u64,
    /// The effect.
    pub effect: Effect,
    /// `true` to apply the rule to every call from the `nth` on, `false` to apply it to the `nth`
    /// call only.
    pub repeat: bool,
}

impl Rule {
    /// Creates a fault of the `nth` call only.
    pub const fn once(call: Call, nth: u64, effect: Effect) -> Self {
        Self { call, nth, effect, repeat: false }
    }

    /// Creates a fault of every call of this kind.
    pub const fn always(call: Call, effect: Effect) -> Self {
        Self { call, nth: 1, effect, repeat: true }
    }

    fn fits(&self, call: Call, count: u64) -> bool {
        let meant = if self.repeat { count >= self.nth } else { count == self.nth };
        let possible = call.counts_bytes() || matches!(self.effect, Effect::Errno(_));
        self.call == call && meant && possible
    }
}

/// A list of faults. An empty list only counts calls.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
    rivals: Vec<RivalAction>,
}

/// An action that simulates another process, made right before a call.
#[derive(Clone)]
struct RivalAction {
    call: Call,
    nth: u64,
    act: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for RivalAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a rival before {} {}", self.call.name(), self.nth)
    }
}

/// The result of running under a script.
#[derive(Clone, Debug)]
pub struct ScriptRun<R> {
    /// The return value of the closure.
    pub value: R,
    /// Number of calls to which a rule applied.
    pub fired: u64,
    /// Number of attempted calls of each kind, including those that a rule stopped.
    pub calls: CallCounts,
}

/// Calls counted by kind: `counts[Call::Read]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounts([u64; CALLS]);

impl CallCounts {
    /// Returns the number of calls of this kind.
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize]
    }

    /// Returns the number of calls of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<Call> for CallCounts {
    type Output = u64;

    fn index(&self, call: Call) -> &u64 {
        &self.0[call as usize]
    }
}

impl Script {
    /// Creates a script with these rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, rivals: Vec::new() }
    }

    /// Runs `act` right before the `nth` call of this kind, even if a rule stops that call. This
    /// makes the outcome of a race deterministic. The script does not apply to calls that `act`
    /// makes.
    #[must_use]
    pub fn meanwhile(
        mut self,
        call: Call,
        nth: u64,
        act: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        self.rivals.push(RivalAction { call, nth, act: Arc::new(act) });
        self
    }

    /// Runs `body` on this thread under the script, and counts calls from zero. If another script
    /// is active, it is suspended until `body` returns or unwinds.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> ScriptRun<R> {
        let state = Arc::new(ScriptState::new(self.clone()));
        let value = {
            let _restore = install(Some(Arc::clone(&state)));
            body()
        };
        ScriptRun { value, fired: state.fired.load(Ordering::Relaxed), calls: state.counts() }
    }
}

/// A running script, shared by its threads.
#[derive(Debug)]
pub(super) struct ScriptState {
    script: Script,
    calls: [AtomicU64; CALLS],
    fired: AtomicU64,
}

pub(super) type Installed = Option<Arc<ScriptState>>;

thread_local! {
    static INSTALLED: RefCell<Installed> = const { RefCell::new(None) };
}

impl ScriptState {
    fn new(script: Script) -> Self {
        Self { script, calls: [const { AtomicU64::new(0) }; CALLS], fired: AtomicU64::new(0) }
    }

    fn counts(&self) -> CallCounts {
        CallCounts(std::array::from_fn(|at| self.calls[at].load(Ordering::Relaxed)))
    }

    fn decide(&self, call: Call, len: usize) -> Result<Option<usize>, Errno> {
        let count = self.calls[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        for rival in self.script.rivals.iter().filter(|r| r.call == call && r.nth == count) {
            let _restore = install(None);
            (rival.act)();
        }
        let Some(rule) = self.script.rules.iter().find(|rule| rule.fits(call, count)) else {
            return Ok(Some(len));
        };
        self.fired.fetch_add(1, Ordering::Relaxed);
        match rule.effect {
            Effect::Short(limit) => Ok(Some(len.min(limit.max(1)))),
            Effect::Errno(errno) => Err(errno),
            Effect::Zero => Ok(None),
        }
    }
}

/// Restores the previous script when dropped, even if the body panics.
pub(super) struct Restore(Installed);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        INSTALLED.with(|slot| slot.replace(before));
    }
}

pub(super) fn install(state: Installed) -> Restore {
    Restore(INSTALLED.with(|slot| slot.replace(state)))
}

pub(super) fn installed() -> Installed {
    INSTALLED.with(|slot| slot.borrow().clone())
}

pub(super) fn decide(call: Call, len: usize) -> Result<Option<usize>, Errno> {
    installed().map_or(Ok(Some(len)), |state| state.decide(call, len))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fault::{counted, inherit, uncounted};

    fn read(len: usize) -> Result<usize, Errno> {
        counted(Call::Read, len, Ok)
    }

    #[test]
    fn a_rule_fires_at_its_call_and_no_other() {
        let script = Script::new(vec![Rule::once(Call::Read, 2, Effect::Errno(Errno::IO))]);
        let outcome = script.run(|| [read(5), read(5), read(5)]);
        assert_eq!(outcome.value, [Ok(5), Err(Errno::IO), Ok(5)]);
        assert_eq!((outcome.fired, outcome.calls[Call::Read], outcome.calls.total()), (1, 3, 3));
        assert_eq!(outcome.calls.of(Call::Write), 0);
    }

    #[test]
    fn short_limits_but_leaves_at_least_a_byte() {
        let script = Script::new(vec![
            Rule::once(Call::Read, 1, Effect::Short(0)),
            Rule::always(Call::Read, Effect::Short(3)),
        ]);
        let outcome = script.run(|| [read(5), read(5), read(2), read(0)]);
        assert_eq!(outcome.value, [Ok(1), Ok(3), Ok(2), Ok(0)]);
        assert_eq!(outcome.fired, 4);
    }

    #[test]
    fn zero_answers_without_the_call() {
        let script = Script::new(vec![Rule::once(Call::Read, 1, Effect::Zero)]);
        let made = script.run(|| counted(Call::Read, 5, |_| panic!("the call was made")));
        assert_eq!(made.value, Ok(0));
    }

    #[test]
    fn a_call_without_a_count_fails_but_is_never_short() {
        let script = Script::new(vec![
            Rule::once(Call::Clone, 1, Effect::Short(1)),
            Rule::once(Call::Clone, 2, Effect::Zero),
            Rule::once(Call::Clone, 3, Effect::Errno(Errno::XDEV)),
        ]);
        let clone = || uncounted(Call::Clone, || Ok(()));
        let outcome = script.run(|| [clone(), clone(), clone()]);
        assert_eq!(outcome.value, [Ok(()), Ok(()), Err(Errno::XDEV)]);
        assert_eq!(outcome.fired, 1);
    }

    #[test]
    fn a_started_thread_shares_the_script_and_a_stranger_does_not() {
        let script = Script::new(vec![Rule::once(Call::Read, 2, Effect::Zero)]);
        let outcome = script.run(|| {
            let first = read(5);
            let held = inherit();
            let stranger = std::thread::spawn(|| read(5)).join().unwrap();
            let heir = std::thread::spawn(move || held.enter(|| read(5))).join().unwrap();
            [first, stranger, heir]
        });
        assert_eq!(outcome.value, [Ok(5), Ok(5), Ok(0)]);
        assert_eq!(outcome.calls[Call::Read], 2);
    }

    #[test]
    fn a_rival_acts_right_before_its_call_and_outside_the_script() {
        let seen = Arc::new(AtomicU64::new(0));
        let acted = Arc::clone(&seen);
        let script = Script::new(vec![Rule::always(Call::Read, Effect::Zero)]).meanwhile(
            Call::Read,
            2,
            move || {
                acted.store(read(5).unwrap() as u64, Ordering::Relaxed);
            },
        );
        let outcome = script.run(|| {
            let first = read(5);
            assert_eq!(seen.load(Ordering::Relaxed), 0);
            [first, read(5)]
        });
        assert_eq!((outcome.value, seen.load(Ordering::Relaxed)), ([Ok(0), Ok(0)], 5));
        assert_eq!(outcome.calls[Call::Read], 2);
    }

    #[test]
    fn the_script_ends_with_its_closure_even_by_panic() {
        let script = Script::new(vec![Rule::always(Call::Read, Effect::Zero)]);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            script.run(|| panic!("on purpose"));
        }));
        assert!(unwound.is_err());
        assert_eq!(read(5), Ok(5));
        let inner = Script::new(vec![]);
        let outcome = script.run(|| (inner.run(|| read(5)).value, read(5)));
        assert_eq!(outcome.value, (Ok(5), Ok(0)));
    }
}
