//! The lines of a result's JSON: broken on the upper levels alone, so that a file stays readable and short.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io;

use crate::study::result::StudyResult;

/// The levels of a result down to a sample: result, arms, arm, sessions, session, samples.
const TO_SAMPLES: usize = 6;
/// Those down to an arm, a ratio, a claim.
const TO_ARMS: usize = 2;

/// A result as JSON in which each sample has one line.
pub fn to_text(result: &StudyResult) -> Result<String, serde_json::Error> {
    in_lines(result, TO_SAMPLES)
}

/// A result as JSON in which each arm, ratio and claim has one line.
pub(super) fn by_arms(result: &StudyResult) -> Result<String, serde_json::Error> {
    in_lines(result, TO_ARMS)
}

fn in_lines(result: &StudyResult, deepest: usize) -> Result<String, serde_json::Error> {
    let mut text = Vec::new();
    let formatter = Shallow { pretty: PrettyFormatter::new(), depth: 0, deepest };
    let mut serializer = Serializer::with_formatter(&mut text, formatter);
    result.serialize(&mut serializer)?;
    text.push(b'\n');
    String::from_utf8(text).map_err(|e| serde_json::Error::io(io::Error::other(e)))
}

/// Lines and blanks on the upper levels, none below.
struct Shallow {
    pretty: PrettyFormatter<'static>,
    depth: usize,
    /// The last level that gets lines.
    deepest: usize,
}

macro_rules! by_depth {
    ($($name:ident($($argument:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, to: &mut W $(, $argument: $kind)*) -> io::Result<()> {
            if self.depth <= self.deepest {
                self.pretty.$name(to $(, $argument)*)
            } else {
                CompactFormatter.$name(to $(, $argument)*)
            }
        })*
    };
}

impl Formatter for Shallow {
    fn begin_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth <= self.deepest {
            self.pretty.begin_array(to)
        } else {
            CompactFormatter.begin_array(to)
        }
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < self.deepest {
            self.pretty.end_array(to)
        } else {
            CompactFormatter.end_array(to)
        }
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.depth <= self.deepest {
            self.pretty.begin_object(to)
        } else {
            CompactFormatter.begin_object(to)
        }
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth < self.deepest {
            self.pretty.end_object(to)
        } else {
            CompactFormatter.end_object(to)
        }
    }

    by_depth!(
        begin_array_value(first: bool),
        end_array_value(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value(),
    );
}
