//! Decides whether other processes disturbed a measurement meant for the idle machine, and how its results may be
//! used. Used by all commands that write the profile.

use thalweg_core::profile::Load;

use crate::busy::BusyProcessors;

/// If at least this fraction of the samples is disturbed, the median sample is disturbed too. The samples then do not
/// describe an idle machine.
const MOST: f64 = 0.5;

/// Returns the load for which results are valid, from the activity of other processes before and after, and the
/// fraction of disturbed samples. `None` if the machine was neither idle nor as busy as a profile's `loaded` requires.
pub fn kept_as(around: &BusyProcessors, disturbed: f64) -> Option<Load> {
    // The load that thalweg itself creates keeps every CPU but one busy.
    let loaded = around.of.saturating_sub(1) as f64;
    if around.is_crowded() {
        (around.processors >= 0.5 * loaded).then_some(Load::Loaded)
    } else {
        (disturbed < MOST).then_some(Load::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_work_met_is_of_the_loaded_machine_or_of_none() {
        let kept =
            |processors, of, disturbed| kept_as(&BusyProcessors { processors, of }, disturbed);
        for of in [1, 2, 4, 64] {
            assert_eq!(kept(0.0, of, 0.0), Some(Load::Idle));
            assert_eq!(kept(0.4, of, 0.2), Some(Load::Idle), "a little is going on everywhere");
            assert_eq!(kept(of as f64, of, 0.0), Some(Load::Loaded));
            assert_eq!(kept(0.0, of, 0.7), None, "load that began in the middle and ended");
        }
        assert_eq!(kept(0.6, 2, 0.0), Some(Load::Loaded));
        assert_eq!(kept(1.0, 8, 0.0), None, "seven are busy where it is called loaded");
        assert_eq!(kept(1.0, 64, 0.0), Some(Load::Idle), "less than a tenth of the machine");
    }
}
