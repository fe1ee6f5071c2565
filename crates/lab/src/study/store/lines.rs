//! Formats a result's JSON with line breaks on the upper levels only, so that the file is readable and short.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io;

use crate::study::result::StudyResult;

/// The number of levels down to a sample: result, arms, arm (a compared variant), sessions, session, samples.
const TO_SAMPLES: usize = 6;
/// The number of levels down to an arm, a ratio or a claim.
const TO_ARMS: usize = 2;

/// Returns a result as JSON with one line per sample.
pub fn to_text(result: &StudyResult) -> Result<String, serde_json::Error> {
    in_lines(result, TO_SAMPLES)
}

/// Returns a result as JSON with one line per arm, ratio and claim.
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

/// A formatter with line breaks and indentation on the upper levels, and none below.
struct Shallow {
    pretty: PrettyFormatter<'static>,
    depth: usize,
    /// The deepest level with line breaks.
    deepest: usize,
}

macro_rules! by_depth {
    ($($name:ident(opens $opens:literal, closes $closes:literal $(, $argument:ident: $kind:ty)*)),* $(,)?) => {
        $(fn $name<W: ?Sized + io::Write>(&mut self, to: &mut W $(, $argument: $kind)*) -> io::Result<()> {
            self.depth += $opens;
            let is_upper = self.depth <= self.deepest;
            self.depth -= $closes;
            if is_upper {
                self.pretty.$name(to $(, $argument)*)
            } else {
                CompactFormatter.$name(to $(, $argument)*)
            }
        })*
    };
}

impl Formatter for Shallow {
    by_depth!(
        begin_array(opens 1, closes 0),
        end_array(opens 0, closes 1),
        begin_object(opens 1, closes 0),
        end_object(opens 0, closes 1),
        begin_array_value(opens 0, closes 0, first: bool),
        end_array_value(opens 0, closes 0),
        begin_object_key(opens 0, closes 0, first: bool),
        begin_object_value(opens 0, closes 0),
        end_object_value(opens 0, closes 0),
    );
}
