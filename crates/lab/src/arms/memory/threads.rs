//! Runs an operation in several threads at the same time, each on its own memory.

use std::thread;

use super::RepeatedCopy;

/// One set of buffers per thread; the calling thread uses the first. An operation of this arm (a compared variant) is
/// one copy in each thread at the same time.
#[derive(Debug)]
pub struct Threads<C> {
    each: Vec<C>,
    /// The reason why fewer threads ran, which makes the sample invalid.
    pub(super) short: Option<String>,
}

impl<C> Threads<C> {
    pub fn of(each: Vec<C>) -> Self {
        Self { each, short: None }
    }

    /// Returns an error if fewer threads ran.
    pub fn all_ran(&self) -> Result<(), String> {
        self.short.clone().map_or(Ok(()), Err)
    }
}

impl<C: RepeatedCopy + Send> RepeatedCopy for Threads<C> {
    fn allocate(&mut self) -> Result<(), String> {
        self.each.iter_mut().try_for_each(C::allocate)
    }

    fn copy(&mut self, times: u32) -> u64 {
        let Self { each, short } = self;
        let Some((own, others)) = each.split_first_mut() else { return 0 };
        thread::scope(|scope| {
            let started = others
                .iter_mut()
                .map(|one| thread::Builder::new().spawn_scoped(scope, move || one.copy(times)));
            let (others, failed): (Vec<_>, Vec<_>) = started.partition(Result::is_ok);
            if let Some(Err(error)) = failed.into_iter().next() {
                *short = Some(format!("a thread could not be started: {error}"));
            }
            let others = others.into_iter().flatten();
            let sum = own.copy(times);
            // A panic in a thread is propagated.
            others.fold(sum, |sum, one| match one.join() {
                Ok(part) => sum.wrapping_add(part),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn at_a_stretch(&self) -> u32 {
        self.each.iter().map(C::at_a_stretch).min().unwrap_or(u32::MAX)
    }

    fn renew(&mut self) -> Result<(), String> {
        self.each.iter_mut().try_for_each(C::renew)
    }

    fn verify(&mut self) -> Result<(), String> {
        self.each.iter_mut().try_for_each(C::verify)
    }

    fn bytes(&self) -> usize {
        self.each.iter().map(C::bytes).sum()
    }

    fn is_fresh(&self) -> bool {
        self.each.iter().any(C::is_fresh)
    }
}
