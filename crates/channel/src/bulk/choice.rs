//! What an arm in use was chosen by, as somebody who asks is told.

use super::choose::{Destination, Facts};
use std::fmt;
use thalweg_core::profile::Evidence;

/// What a choice rests on; its `Display` says it in words.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The caller named the arm.
    Asked,
    /// The measurements that were handed in: this is what they say of the arm, if they can be cited.
    Measured(Option<Cited>),
    /// Nothing is measured of the arm under these facts: the order of the list, and what is known
    /// without measuring.
    Unmeasured,
}

/// Measurements of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Cited {
    /// The numbers.
    pub evidence: Evidence,
    /// The same for people.
    pub words: String,
}

impl Choice {
    /// What was measured of the arm.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Measured(cited) => cited.as_ref().map(|cited| &cited.evidence),
            Self::Asked | Self::Unmeasured => None,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::Measured(cited) => {
                f.write_str("fastest measured of those that work")?;
                cited.as_ref().map_or(Ok(()), |cited| write!(f, "; {}", cited.words))
            }
            Self::Unmeasured => f.write_str("not measured: first by what is known of it"),
        }
    }
}

impl Facts {
    /// For people: `from lent memory into memory used before`.
    pub fn ends(&self) -> String {
        let from = if self.will_loan { "lent memory" } else { "the sender's own memory" };
        let into = match self.destination {
            Destination::Unknown | Destination::Resident => "memory used before",
            Destination::Fresh => "new memory",
            Destination::FreshHuge => "new memory on huge pages",
        };
        format!("from {from} into {into}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Link;
    use crate::bulk::{Measured, Options, Receiver, Sender};
    use std::sync::Arc;

    /// Knows one arm, and has nothing to cite.
    #[derive(Debug)]
    struct Knows(&'static str);

    impl Measured for Knows {
        fn cost(&self, _: &Facts, arm: &str) -> Option<f64> {
            (arm == self.0).then_some(1.0)
        }
    }

    fn told(options: Options) -> (&'static str, Choice) {
        let (near, far) = Link::pair().unwrap();
        let receiver = std::thread::spawn(|| Receiver::over(far, &Options::default()).unwrap());
        let sender = Sender::over(near, options).unwrap();
        receiver.join().unwrap();
        (sender.arm().name, sender.choice())
    }

    #[test]
    fn a_sender_tells_whether_its_arm_was_asked_for_measured_or_neither() {
        let knows = |arm| Options { measured: Some(Arc::new(Knows(arm))), ..Options::default() };
        assert_eq!(told(knows("pipe")), ("pipe", Choice::Measured(None)));
        assert_eq!(told(Options::default()).1, Choice::Unmeasured);
        let asked = Options { only: Some("ring".to_owned()), ..knows("ring") };
        assert_eq!(told(asked), ("ring", Choice::Asked));
        // What was measured best is not allowed here, and of what is nothing is measured.
        let without = Options { without: vec!["pipe".to_owned()], ..knows("pipe") };
        let (arm, choice) = told(without);
        assert!(arm != "pipe" && choice == Choice::Unmeasured, "{arm}: {choice}");
        assert_eq!(choice.evidence(), None);
    }
}
