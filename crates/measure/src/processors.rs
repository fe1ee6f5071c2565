//! The CPUs on which a process may run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::thread::available_parallelism;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// Returns the CPUs that the calling thread may use now.
    pub fn of_this_thread() -> Result<Self, String> {
        let set = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect()))
    }

    /// Parses a list like `0,2`.
    pub fn parse(list: &str) -> Result<Self, String> {
        let bad = || format!("{list:?} is not a list of CPUs such as 0,2");
        let numbers = list.split(',').map(|n| n.trim().parse().map_err(|_| bad()));
        Self::new(numbers.collect::<Result<_, _>>()?)
    }

    pub fn new(numbers: Vec<usize>) -> Result<Self, String> {
        match numbers.iter().find(|n| **n >= CpuSet::MAX_CPU) {
            Some(n) => Err(format!("CPU {n} does not exist")),
            None if numbers.is_empty() => Err("the list of CPUs is empty".to_owned()),
            None => Ok(Self(numbers)),
        }
    }

    /// Returns only the last CPU. The first one does most of the work of the operating system.
    #[must_use]
    pub fn last(&self) -> Self {
        Self(self.0.last().copied().into_iter().collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of CPUs that a load can keep busy: all but one, within the CPU quota.
    pub fn spare(&self) -> usize {
        let quota = available_parallelism().map_or(usize::MAX, usize::from);
        self.count().min(quota).saturating_sub(1)
    }

    /// Returns the list in the format of [`parse`](Self::parse).
    pub fn list(&self) -> String {
        self.0.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Pins the calling thread, and the threads and processes it starts, to these CPUs.
pub fn pin_to(processors: &Processors) -> Result<(), String> {
    let mut set = CpuSet::new();
    processors.0.iter().for_each(|n| set.set(*n));
    sched_setaffinity(None, &set)
        .map_err(|e| format!("sched_setaffinity to {}: {e}", processors.list()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read_as_it_is_written() {
        let read = Processors::parse("0, 2").unwrap();
        assert_eq!((read.list().as_str(), read.count()), ("0,2", 2));
        assert_eq!(read.last().list(), "2");
        for bad in ["", "x", "0-3", "100000"] {
            assert!(Processors::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_thread_can_be_kept_where_it_may_be_anyway() {
        let here = Processors::of_this_thread().unwrap();
        assert!(here.count() > 0);
        pin_to(&here).unwrap();
        assert_eq!(Processors::of_this_thread().unwrap(), here);
    }
}
