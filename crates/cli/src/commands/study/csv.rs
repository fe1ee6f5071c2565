//! Every sample of a run, a line each.

use std::{fmt::Write, fs, path::Path};
use thalweg_lab::study::result::{ArmResult, StudyResult};

use crate::exit::Failure;

const HEAD: &str = "study,arm,cell,size,bytes,load,session,round,operations,wall_seconds,\
user_seconds,sys_seconds,minor_faults,major_faults,voluntary_switches,involuntary_switches,\
bytes_moved,calls,stolen_ticks,dirtied_pages,written_pages,cpu_pressure_us,io_pressure_us,\
memory_pressure_us,calls_kind\n";

/// Writes the file.
pub fn write(results: &[StudyResult], path: &Path) -> Result<(), Failure> {
    let mut text = HEAD.to_owned();
    for result in results {
        result.arms.iter().for_each(|arm| rows(&mut text, &result.study, arm));
    }
    fs::write(path, text).map_err(|e| Failure::of_io("write", &path.display().to_string(), &e))
}

fn rows(text: &mut String, study: &str, arm: &ArmResult) {
    let place = &arm.place;
    let (name, cell) = (quoted(&arm.name), quoted(&place.cell));
    for session in &arm.sessions {
        for taken in &session.samples {
            let s = &taken.sample;
            let calls = s.calls.map_or(String::new(), |calls| calls.to_string());
            let _ = writeln!(
                text,
                "{study},{name},{cell},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{calls},{},{},{},{},{},{},{}",
                place.size,
                place.bytes,
                place.load.name(),
                session.session,
                taken.round,
                session.repeats,
                s.wall.as_secs_f64(),
                s.user.as_secs_f64(),
                s.sys.as_secs_f64(),
                s.minor_faults,
                s.major_faults,
                s.voluntary_switches,
                s.involuntary_switches,
                s.bytes,
                s.stolen_ticks,
                s.dirtied_pages,
                s.written_pages,
                s.pressure.cpu,
                s.pressure.io,
                s.pressure.memory,
                s.calls.map_or("", |_| s.calls_kind.name()),
            );
        }
    }
}

/// As RFC 4180 wants it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
