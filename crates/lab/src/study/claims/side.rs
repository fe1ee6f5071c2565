//! On which side of a range an interval lies, and the verdict that makes.

use thalweg_core::profile::Ratio;

use super::{Judged, board::Absent, words};
use crate::study::result::{
    ClaimVerdict::{self, Contradicted, Reproduced, Undecided},
    Evidence,
};

/// The verdict on one figure, which must differ from the edges of the range by more than the noise.
pub(super) fn judged(
    text: String,
    figure: Result<Ratio, Absent>,
    within: [f64; 2],
    noise: f64,
) -> Judged {
    let range = words::range(within);
    match figure {
        Err(absent) => {
            let evidence = Evidence {
                text,
                measured: None,
                lo: None,
                hi: None,
                within: Some(within),
                verdict: absent.verdict,
            };
            Judged { evidence, why: absent.why }
        }
        Ok(ratio) => {
            let verdict = side(&ratio, within, noise);
            let why = match verdict {
                Reproduced => format!("all of it is {range}"),
                Contradicted => format!("none of it is {range}"),
                _ if side(&ratio, within, 0.0) == Undecided => {
                    format!("part of it is {range}, part is not")
                }
                _ => format!("too near the edge of {range} for a noise of {:.0} %", noise * 100.0),
            };
            let text = format!("{text}: {}", words::interval(&ratio));
            Judged { evidence: seen(text, &ratio, within, verdict), why }
        }
    }
}

fn seen(text: String, ratio: &Ratio, within: [f64; 2], verdict: ClaimVerdict) -> Evidence {
    let (measured, lo, hi) = (Some(ratio.ratio), Some(ratio.lo), Some(ratio.hi));
    Evidence { text, measured, lo, hi, within: Some(within), verdict }
}

/// Inside, outside, or neither. The interval reaches at least as far as the noise.
pub(super) fn side(ratio: &Ratio, [least, most]: [f64; 2], noise: f64) -> ClaimVerdict {
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
