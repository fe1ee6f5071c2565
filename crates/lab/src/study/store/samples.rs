//! All samples of a run as CSV, one per line: the output of `--csv` and the file saved with a result.

use std::{borrow::Cow, collections::HashMap, fmt::Write, str::FromStr, time::Duration};

use crate::study::result::{ArmResult, RoundSample, StudyResult};
use thalweg_core::escape;
use thalweg_measure::sample::{CallsKind, Pressure, Sample};

/// The columns that all versions have.
const FIRST: &str = "study,arm,cell,size,bytes,load,session,round,operations,wall_seconds,\
user_seconds,sys_seconds,minor_faults,major_faults,voluntary_switches,involuntary_switches,\
bytes_moved,calls,stolen_ticks,dirtied_pages,written_pages,cpu_pressure_us,io_pressure_us,\
memory_pressure_us,calls_kind,far_user_seconds,far_sys_seconds,told";
/// The columns added later; results of earlier versions do not have them.
const LATER: &str = ",waited_seconds,busy_ticks";

pub fn csv(results: &[StudyResult]) -> String {
    let mut text = format!("{FIRST}{LATER}\n");
    for result in results {
        result.arms.iter().for_each(|arm| rows(&mut text, &result.study, arm));
    }
    text
}

fn rows(text: &mut String, study: &str, arm: &ArmResult) {
    let place = &arm.place;
    let (bytes, load) = (place.bytes, place.load.name());
    let [name, cell, size] = [&arm.name, &place.cell, &place.size].map(|text| escape::csv(text));
    for session in &arm.sessions {
        let (number, operations) = (session.session, session.repeats);
        for RoundSample { round, sample: s } in &session.samples {
            let (wall, user, sys) =
                (s.wall.as_secs_f64(), s.user.as_secs_f64(), s.sys.as_secs_f64());
            let calls = s.calls.map_or(String::new(), |calls| calls.to_string());
            let kind = s.calls.map_or("", |_| s.calls_kind.name());
            let Pressure { cpu, io, memory } = s.pressure;
            let (far_user, far_sys) = (s.far_user.as_secs_f64(), s.far_sys.as_secs_f64());
            let _ = write!(
                text,
                "{study},{name},{cell},{size},{bytes},{load},{number},{round},{operations},"
            );
            let _ = write!(text, "{wall},{user},{sys},{},{},", s.minor_faults, s.major_faults);
            let _ = write!(text, "{},{},", s.voluntary_switches, s.involuntary_switches);
            let _ = write!(text, "{},{calls},{},", s.bytes, s.stolen_ticks);
            let _ = write!(text, "{},{},{cpu},{io},{memory},", s.dirtied_pages, s.written_pages);
            let _ = write!(text, "{kind},{far_user},{far_sys},{},", s.reported);
            let _ = writeln!(text, "{},{}", s.waited.as_secs_f64(), s.busy_ticks);
        }
    }
}

/// The session of an arm (a compared variant) to which a line belongs.
#[derive(PartialEq, Eq, Hash)]
struct SampleKey {
    arm: String,
    cell: String,
    size: String,
    load: String,
    session: usize,
}

/// Puts the samples of a CSV back into the sessions in which they were taken.
///
/// # Errors
/// If a line is not a sample, or its session is not part of the result.
pub fn put_back(csv: &str, result: &mut StudyResult) -> Result<(), String> {
    let no_head = || "the first line is not the header of a samples file".to_owned();
    let after = csv.strip_prefix(FIRST).ok_or_else(no_head)?;
    let later = after.strip_prefix(LATER);
    let mut rest = later.unwrap_or(after).strip_prefix('\n').ok_or_else(no_head)?;
    let columns = columns(FIRST) + later.map_or(0, |_| columns(LATER) - 1);
    let mut at: HashMap<SampleKey, (usize, usize)> = HashMap::new();
    for (arm, found) in result.arms.iter().enumerate() {
        for (session, of) in found.sessions.iter().enumerate() {
            let key = SampleKey {
                arm: found.name.clone(),
                cell: found.place.cell.clone(),
                size: found.place.size.clone(),
                load: found.place.load.name().to_owned(),
                session: of.session,
            };
            at.insert(key, (arm, session));
        }
    }
    let mut number = 1;
    while !rest.is_empty() {
        number += 1;
        let line = SampleLine::take(&mut rest);
        let wrong = || format!("line {number} is not a sample of this result");
        let key = line.key().ok_or_else(wrong)?;
        let &(arm, session) = at.get(&key).ok_or_else(wrong)?;
        let taken = line.sample(columns).ok_or_else(wrong)?;
        result.arms[arm].sessions[session].samples.push(taken);
    }
    Ok(())
}

fn columns(head: &str) -> usize {
    head.split(',').count()
}

/// The fields of a line.
struct SampleLine<'t>(Vec<Cow<'t, str>>);

impl<'t> SampleLine<'t> {
    /// Removes the first line from a text and parses it. Line breaks between quotes belong to a
    /// field.
    fn take(text: &mut &'t str) -> Self {
        let mut fields = Vec::new();
        loop {
            let (field, after) = field(text);
            fields.push(field);
            *text = after;
            if let Some(more) = text.strip_prefix(',') {
                *text = more;
            } else {
                *text = text.strip_prefix('\n').unwrap_or(text);
                return Self(fields);
            }
        }
    }

    fn get<T: FromStr>(&self, at: usize) -> Option<T> {
        self.0.get(at)?.parse().ok()
    }

    fn seconds(&self, at: usize) -> Option<Duration> {
        Duration::try_from_secs_f64(self.get(at)?).ok()
    }

    fn key(&self) -> Option<SampleKey> {
        let text = |at: usize| Some(self.0.get(at)?.to_string());
        Some(SampleKey {
            arm: text(1)?,
            cell: text(2)?,
            size: text(3)?,
            load: text(5)?,
            session: self.get(6)?,
        })
    }

    /// Parses the sample of a line, which must have the expected number of fields.
    fn sample(&self, columns: usize) -> Option<RoundSample> {
        let has_later = columns > self::columns(FIRST);
        let calls = if self.0.get(17)?.is_empty() { None } else { Some(self.get(17)?) };
        let kinds = [CallsKind::Counted, CallsKind::ReadWrite];
        let kind = kinds.into_iter().find(|kind| self.0.get(24).is_some_and(|k| k == kind.name()));
        let sample = Sample {
            wall: self.seconds(9)?,
            user: self.seconds(10)?,
            sys: self.seconds(11)?,
            minor_faults: self.get(12)?,
            major_faults: self.get(13)?,
            voluntary_switches: self.get(14)?,
            involuntary_switches: self.get(15)?,
            bytes: self.get(16)?,
            calls,
            calls_kind: kind.unwrap_or_default(),
            stolen_ticks: self.get(18)?,
            dirtied_pages: self.get(19)?,
            written_pages: self.get(20)?,
            pressure: Pressure { cpu: self.get(21)?, io: self.get(22)?, memory: self.get(23)? },
            far_user: self.seconds(25)?,
            far_sys: self.seconds(26)?,
            reported: self.get(27)?,
            waited: if has_later { self.seconds(28)? } else { Duration::ZERO },
            busy_ticks: if has_later { self.get(29)? } else { 0 },
        };
        (self.0.len() == columns).then_some(RoundSample { round: self.get(7)?, sample })
    }
}

/// Returns the first field of a text, and the text after it.
fn field(text: &str) -> (Cow<'_, str>, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        return (text[..end].into(), &text[end..]);
    };
    let mut value = String::new();
    let mut rest = quoted;
    loop {
        let end = rest.find('"').unwrap_or(rest.len());
        value.push_str(&rest[..end]);
        rest = rest[end..].strip_prefix('"').unwrap_or_default();
        // Within quotes, two quote characters stand for one (RFC 4180).
        let Some(more) = rest.strip_prefix('"') else { return (value.into(), rest) };
        value.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_commas_quotes_and_line_breaks_is_read_as_it_was_written() {
        for name in ["plain", "a, b", "\"", "say \"x\", twice", "two\nlines", ""] {
            let text = format!("{},{}\nnext", escape::csv(name), escape::csv("é,"));
            let mut rest = text.as_str();
            assert_eq!(SampleLine::take(&mut rest).0, [name, "é,"]);
            assert_eq!(rest, "next");
        }
        let mut endless = "\"no end";
        assert_eq!(SampleLine::take(&mut endless).0, ["no end"]);
    }
}
