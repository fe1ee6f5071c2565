//! What the choice of a mechanism in use rests on, as the sender tells it.

use super::choose::Options;
use super::facts::Facts;
use super::measured::{known, words};
use std::fmt;
use thalweg_core::Prefer;
use thalweg_core::profile::Evidence;

/// What a choice rests on; its `Display` says it in words.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The caller named the mechanism.
    Asked,
    /// The measurements that were handed in: this is what they say of the mechanism.
    Measured(Cited),
    /// Nothing is measured of the mechanism under these facts: the order of the list, and what is
    /// known without measuring.
    Unmeasured,
}

/// Measurements of a mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Cited {
    /// The numbers.
    pub evidence: Evidence,
    /// The same for people.
    pub words: String,
}

impl Choice {
    /// Of a mechanism that was chosen by these facts and options.
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

    /// What was measured of the mechanism.
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
            Self::Asked => f.write_str("asked for"),
            Self::Measured(cited) => {
                write!(f, "fastest measured of those that work; {}", cited.words)
            }
            Self::Unmeasured => f.write_str("not measured: first by what is known of it"),
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
    fn a_sender_tells_whether_its_mechanism_was_asked_for_measured_or_neither() {
        let knows = |mechanism| Options {
            measured: Some(profile([(mechanism, 1.0)])),
            ..Options::default()
        };
        let (mechanism, choice) = told(knows("pipe"));
        assert!(mechanism == "pipe" && choice.evidence().is_some(), "{mechanism}: {choice}");
        assert!(choice.to_string().starts_with("fastest measured of those that work; measured 20"));
        assert_eq!(told(Options::default()).1, Choice::Unmeasured);
        let asked = Options { only: Some("ring".to_owned()), ..knows("ring") };
        assert_eq!(told(asked), ("ring", Choice::Asked));
        // What was measured best is not allowed here, and of what is nothing is measured.
        let without = Options { without: vec!["pipe".to_owned()], ..knows("pipe") };
        let (mechanism, choice) = told(without);
        assert!(mechanism != "pipe" && choice == Choice::Unmeasured, "{mechanism}: {choice}");
        assert_eq!(choice.evidence(), None);
    }
}
