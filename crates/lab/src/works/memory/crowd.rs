//! The same in several threads at once, each on memory of its own.

use std::thread;

use super::Copies;

/// One for each thread; this one has the first. An operation is one operation of each.
pub struct Crowd<C>(pub Vec<C>);

impl<C: Copies + Send> Copies for Crowd<C> {
    fn allocate(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(C::allocate)
    }

    fn copy(&mut self, times: u32) -> u64 {
        let Some((own, others)) = self.0.split_first_mut() else { return 0 };
        thread::scope(|scope| {
            let others: Vec<_> =
                others.iter_mut().map(|one| scope.spawn(move || one.copy(times))).collect();
            let sum = own.copy(times);
            // A thread that panicked takes this one with it.
            others.into_iter().fold(sum, |sum, one| match one.join() {
                Ok(part) => sum.wrapping_add(part),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn at_a_stretch(&self) -> u32 {
        self.0.iter().map(C::at_a_stretch).min().unwrap_or(u32::MAX)
    }

    fn renew(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(C::renew)
    }

    fn verify(&mut self) -> Result<(), String> {
        self.0.iter_mut().try_for_each(C::verify)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(C::bytes).sum()
    }

    fn is_fresh(&self) -> bool {
        self.0.iter().any(C::is_fresh)
    }
}
