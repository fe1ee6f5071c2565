//! Whether other work met a measurement that was meant for the idle machine, and what later choices may then
//! make of it. Commands that write the profile ask here.

use thalweg_core::profile::Load;

use crate::measure::busy::Busy;

/// So many samples that other work disturbed are no samples of an idle machine: the middle one is of them.
const MOST: f64 = 0.5;

/// Under which load what was measured is kept: by how busy the machine was before and after, and by the share of
/// the samples that were disturbed meanwhile. `None` if it belongs to neither: not idle, and not as busy as what
/// a profile calls loaded.
pub(crate) fn kept_as(around: &Busy, disturbed: f64) -> Option<Load> {
    // What is loaded on purpose keeps every processor but one busy.
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
        let kept = |processors, of, disturbed| kept_as(&Busy { processors, of }, disturbed);
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
