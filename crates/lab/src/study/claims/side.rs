//! Determines on which side of a range an interval lies, and the resulting verdict.

use super::{
    JudgedCheck,
    measurements::{Absent, RatioFigure},
    sessions::sessions_to_decide,
    words,
};
use crate::study::result::{
    ClaimEvidence,
    ClaimVerdict::{self, Contradicted, Reproduced, Undecided},
};
use thalweg_measure::stats::says_nothing;

/// Returns the verdict on one figure, which must differ from the ends of the range by more than the noise.
pub(super) fn judged(
    text: String,
    figure: Result<RatioFigure, Absent>,
    within: [f64; 2],
    noise: f64,
) -> JudgedCheck {
    let range = words::range(within);
    match figure {
        Err(absent) => {
            let evidence = ClaimEvidence {
                text,
                measured: None,
                lo: None,
                hi: None,
                within: Some(within),
                verdict: absent.verdict,
                sessions_needed: None,
            };
            JudgedCheck::plain(evidence, absent.why)
        }
        Ok(figure) => {
            let ratio = &figure.ratio;
            let verdict = side(&figure, within, noise);
            let sessions_needed = sessions_to_decide(&figure, within, noise);
            let sessions_needed = sessions_needed.filter(|_| verdict == Undecided);
            let why = match verdict {
                Reproduced => format!("the whole interval is {range}"),
                Contradicted => format!("no part of the interval is {range}"),
                _ if !figure.linear && says_nothing(ratio) => {
                    "the interval spans more than a factor of ten".to_owned()
                }
                _ if side(&figure, within, 0.0) == Undecided => {
                    format!("only part of the interval is {range}")
                }
                _ => {
                    format!("closer to the edge of {range} than the noise, {:.0} %", noise * 100.0)
                }
            };
            let why = why + &words::sessions(sessions_needed);
            let wide = verdict == Undecided && !figure.linear && says_nothing(ratio);
            let text = format!("{text}: {}", words::interval(ratio, wide));
            let evidence = ClaimEvidence {
                text,
                measured: Some(ratio.ratio),
                lo: Some(ratio.lo),
                hi: Some(ratio.hi),
                within: Some(within),
                verdict,
                sessions_needed,
            };
            JudgedCheck { figure: Some(figure), ..JudgedCheck::plain(evidence, why) }
        }
    }
}

/// Returns whether the interval is inside the range, outside it, or neither. The noise is that of costs, so it applies
/// to ratios only: an interval of a ratio that is narrower than the noise is first widened to the noise.
pub(super) fn side(figure: &RatioFigure, [least, most]: [f64; 2], noise: f64) -> ClaimVerdict {
    let (ratio, noise) = (&figure.ratio, if figure.linear { 0.0 } else { noise });
    let lo = ratio.lo.min(ratio.ratio / (1.0 + noise));
    let hi = ratio.hi.max(ratio.ratio * (1.0 + noise));
    if least <= lo && hi <= most {
        Reproduced
    } else if hi < least || most < lo {
        Contradicted
    } else {
        Undecided
    }
}
