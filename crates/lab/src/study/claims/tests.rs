//! Tests of the verdict on a claim: a figure is above, below or across its bound.

use super::{CombinedChecks, side, words};
use super::{correlation::spearman, measurements::RatioFigure, side::side};
use crate::study::result::ClaimVerdict::{Contradicted, Reproduced, Undecided};
use proptest::prelude::*;
use thalweg_core::profile::Ratio;

#[test]
fn a_figure_is_inside_outside_or_across() {
    let side = |ratio, lo, hi, within| side(&figure(Ratio { ratio, lo, hi }), within, 0.03);
    assert_eq!(side(0.25, 0.24, 0.26, [2.0, f64::INFINITY]), Contradicted);
    assert_eq!(side(2.5, 2.4, 2.6, [2.0, f64::INFINITY]), Reproduced);
    assert_eq!(side(2.1, 1.9, 2.3, [2.0, f64::INFINITY]), Undecided);
    // Surely below 1, but by less than the noise.
    assert_eq!(side(0.985, 0.98, 0.99, [0.0, 1.0]), Undecided);
    assert_eq!(side(1.0, 0.99, 1.01, [0.95, 1.05]), Reproduced);
    // The interval is wide, but all of it is below the bound.
    assert_eq!(side(0.02, 0.005, 0.06, [1.0, f64::INFINITY]), Contradicted);
}

fn figure(ratio: Ratio) -> RatioFigure {
    RatioFigure { ratio, sessions: 6, linear: false, disturbed: 0.0 }
}

#[test]
fn an_interval_wider_than_a_factor_of_ten_that_decides_nothing_is_no_information() {
    let judged = |lo, hi| {
        let figure = figure(Ratio { ratio: 0.5, lo, hi });
        side::judged("a to b".to_owned(), Ok(figure), [0.0, 1.0], 0.03)
    };
    let wide = judged(0.1, 1.1);
    assert_eq!(wide.evidence.text, "a to b: no information (from 0.100 to 1.10)");
    assert_eq!(judged(0.2, 1.1).evidence.text, "a to b: 0.500 [0.200, 1.10]");
    assert_eq!(judged(0.01, 0.9).evidence.verdict, Reproduced);
}

#[test]
fn a_verdict_says_that_other_work_disturbed_its_samples() {
    let reason = |disturbed| {
        let figure = RatioFigure { disturbed, ..figure(Ratio { ratio: 0.5, lo: 0.45, hi: 0.55 }) };
        let judged = side::judged("a to b".to_owned(), Ok(figure), [0.0, 1.0], 0.03);
        CombinedChecks::of(vec![judged], 0.03).reason
    };
    let plain = "a to b: 0.500 [0.450, 0.550]; the whole interval is at most 1";
    assert_eq!(reason(0.09), plain);
    let more = "other processes disturbed 40 % of its samples";
    assert_eq!(reason(0.4), format!("{plain}; {more}"));
}

#[test]
fn one_of_many_needs_a_wider_interval_about_the_same_figure() {
    let alone = figure(Ratio { ratio: 1.1, lo: 1.05, hi: 1.16 });
    let joint = alone.one_of(8).ratio;
    // Quantiles of Student's t with 5 degrees of freedom: 2.571 for a single interval, 4.526 for
    // one of eight.
    assert!((joint.lo - 1.1 * (1.05_f64 / 1.1).powf(4.526 / 2.571)).abs() < 1e-4, "{joint:?}");
    assert!(joint.hi > 1.2 && (joint.ratio - 1.1).abs() < 1e-12, "{joint:?}");
    let correlation =
        RatioFigure { linear: true, ..figure(Ratio { ratio: 0.1, lo: -0.5, hi: 0.7 }) };
    let joint = correlation.one_of(8).ratio;
    assert!((joint.lo + 0.956).abs() < 1e-2 && joint.hi <= 1.0, "{joint:?}");
}

#[test]
fn the_noise_of_costs_says_nothing_of_a_correlation() {
    let ratio = Ratio { ratio: 0.9, lo: 0.89, hi: 0.91 };
    assert_eq!(side(&figure(ratio), [-1.0, 0.88], 0.05), Undecided);
    assert_eq!(
        side(&RatioFigure { linear: true, ..figure(ratio) }, [-1.0, 0.88], 0.05),
        Contradicted
    );
}

#[test]
fn ranges_are_said_in_words() {
    assert_eq!(words::range([2.0, f64::INFINITY]), "at least 2");
    assert_eq!(words::range([0.0, 0.4]), "at most 0.400");
    assert_eq!(words::range([f64::NEG_INFINITY, 4096.0]), "at most 4096");
    assert_eq!(words::range([0.95, 1.05]), "0.950 to 1.05");
    assert_eq!(words::range([1.0, 1.0]), "exactly 1");
    let list = toml::Value::Array(vec![2.05.into(), toml::Value::String("x".into())]);
    assert_eq!(words::published(&list), "2.05, x");
}

proptest! {
    #[test]
    fn more_noise_or_a_wider_interval_never_turns_a_verdict_round(
        middle in 0.01..100.0_f64,
        (below, above) in (1.0..3.0_f64, 1.0..3.0_f64),
        (least, width) in (0.0..50.0_f64, 0.0..50.0_f64),
        (wider, noise) in (1.0..3.0_f64, 0.0..1.0_f64),
    ) {
        let within = [least, least + width];
        let ratio = Ratio { ratio: middle, lo: middle / below, hi: middle * above };
        let wide = Ratio { lo: ratio.lo / wider, hi: ratio.hi * wider, ..ratio };
        let side = |ratio, noise| side(&figure(ratio), within, noise);
        let sure = side(ratio, 0.0);
        for weaker in [side(wide, 0.0), side(ratio, noise)] {
            prop_assert!(weaker == sure || weaker == Undecided, "{sure:?} {weaker:?}");
        }
        match sure {
            Reproduced => prop_assert!(least <= middle && middle <= least + width),
            Contradicted => prop_assert!(middle < least || middle > least + width),
            _ => {}
        }
    }

    #[test]
    fn turning_a_ratio_over_turns_its_range_over(
        (middle, spread) in (0.01..100.0_f64, 1.0..3.0_f64),
        (least, factor) in (0.01..50.0_f64, 1.0..50.0_f64),
    ) {
        let ratio = Ratio { ratio: middle, lo: middle / spread, hi: middle * spread };
        let back = Ratio { ratio: 1.0 / middle, lo: 1.0 / ratio.hi, hi: 1.0 / ratio.lo };
        let most = least * factor;
        let there = side(&figure(ratio), [least, most], 0.05);
        prop_assert_eq!(there, side(&figure(back), [1.0 / most, 1.0 / least], 0.05));
    }

    #[test]
    fn a_rank_correlation_lies_between_minus_one_and_one(
        pairs in prop::collection::vec((-1e3..1e3_f64, -1e3..1e3_f64), 0..12),
    ) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let found = spearman(&a, &b);
        prop_assert!((-1.0 - 1e-9..=1.0 + 1e-9).contains(&found), "{found}");
        prop_assert!((found - spearman(&b, &a)).abs() < 1e-9);
    }
}
