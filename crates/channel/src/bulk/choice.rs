//! The reason for which the sender chose its mechanism.

use super::choose::Options;
use super::facts::Facts;
use super::measured::{known, words};
use std::fmt;
use thalweg_core::Prefer;
use thalweg_core::profile::Evidence;

/// Reason for choosing a mechanism. `Display` formats it as text.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The caller named the mechanism in the options.
    Asked,
    /// The mechanism is the fastest one according to [`Options::measured`].
    Measured(Cited),
    /// The mechanism was not measured under these facts. The default order and general rules
    /// selected it, such as the cost of page faults.
    Unmeasured,
}

/// Measurements of a mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Cited {
    /// The measured values.
    pub evidence: Evidence,
    /// The measurements as text for users.
    pub words: String,
}

impl Choice {
    /// Returns the reason for choosing `mechanism` under these facts and options.
    pub(super) fn of(mechanism: &str, facts: &Facts, options: &Options) -> Self {
        if options.only.is_some() {
            return Self::Asked;
        }
        let cited = options.measured.as_deref().and_then(|profile| {
            let known = known(profile, facts);
            let evidence = known.evidence(mechanism, Prefer::Wall)?;
            Some(Cited { words: words(&known, &evidence, facts), evidence })
        });
        cited.map_or(Self::Unmeasured, Self::Measured)
    }

    /// Returns the measurements of the mechanism, if it was measured.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Measured(cited) => Some(&cited.evidence),
            Self::Asked | Self::Unmeasured => None,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("requested"),
            Self::Measured(cited) => {
                write!(f, "the fastest of the measured methods that work; {}", cited.words)
            }
            Self::Unmeasured => f.write_str("not measured: first in the default order"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use crate::bulk::measured::tests::profile;
    use crate::bulk::{Receiver, Sender};

    fn told(options: Options) -> (&'static str, Choice) {
        let (near, far) = Link::pair().unwrap();
        let receiver = std::thread::spawn(|| Receiver::over(far, &Options::default()).unwrap());
        let sender = Sender::over(near, options).unwrap();
        receiver.join().unwrap();
        (sender.mechanism().name, sender.choice())
    }

    #[test]
    fn a_sender_reports_whether_its_mechanism_was_requested_measured_or_neither() {
        let knows = |mechanism| Options {
            measured: Some(profile([(mechanism, 1.0)])),
            ..Options::default()
        };
        let (mechanism, choice) = told(knows("pipe"));
        assert!(mechanism == "pipe" && choice.evidence().is_some(), "{mechanism}: {choice}");
        assert!(
            choice
                .to_string()
                .starts_with("the fastest of the measured methods that work; measured 20")
        );
        assert_eq!(told(Options::default()).1, Choice::Unmeasured);
        let asked = Options { only: Some("ring".to_owned()), ..knows("ring") };
        assert_eq!(told(asked), ("ring", Choice::Asked));
        // The fastest measured mechanism is excluded, and the remaining ones are not measured.
        let without = Options { without: vec!["pipe".to_owned()], ..knows("pipe") };
        let (mechanism, choice) = told(without);
        assert!(mechanism != "pipe" && choice == Choice::Unmeasured, "{mechanism}: {choice}");
        assert_eq!(choice.evidence(), None);
    }
}
