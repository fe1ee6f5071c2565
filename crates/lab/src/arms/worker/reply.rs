//! Parses the answers of a worker strictly: a line outside the protocol is an error that quotes it.

use serde::Deserialize;
use std::time::Duration;
use thalweg_core::alias::Alias;

use thalweg_measure::sample::Sample;

/// Parses the answer to `hello`. Returns `true` if page faults are part of the work.
pub fn hello(line: &str) -> Result<bool, String> {
    let mut words = line.split(' ');
    if words.next() != Some("thalweg-worker") {
        return Err(format!("it does not use the worker protocol: it printed {}", shown(line)));
    }
    match words.next() {
        Some("1") => {}
        version => {
            return Err(format!(
                "it uses version {version:?} of the worker protocol instead of version 1"
            ));
        }
    }
    match (words.next(), words.next()) {
        (None, _) => Ok(false),
        (Some("faults"), None) => Ok(true),
        _ => Err(format!(
            "{} has words that version 1 of the worker protocol does not define",
            shown(line)
        )),
    }
}

/// Parses the answer to requests without a result.
pub fn done(line: &str) -> Result<(), String> {
    if line == "ok" { Ok(()) } else { Err(format!("it answered {} instead of ok", shown(line))) }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplySample {
    wall_ns: u64,
    user_us: u64,
    sys_us: u64,
    minor_faults: u64,
    major_faults: u64,
    voluntary: u64,
    involuntary: u64,
    bytes: u64,
    calls: Option<u64>,
    #[serde(default)]
    far_user_us: u64,
    #[serde(default)]
    far_sys_us: u64,
}

/// Parses the answer to `run`. `seen` is our own measurement around the request. The work cannot
/// have taken longer than that. Machine-wide values are taken from `seen`.
pub fn sample(line: &str, seen: Sample) -> Result<Sample, String> {
    let taken: ReplySample =
        serde_json::from_str(line).map_err(|e| format!("{}: {e}", shown(line)))?;
    let wall = Duration::from_nanos(taken.wall_ns);
    if wall.is_zero() {
        return Err("it reported that the work took no time".to_owned());
    }
    if wall > seen.wall {
        let elapsed = seen.wall;
        return Err(format!(
            "it reported {wall:?} for the work, but it answered within {elapsed:?}"
        ));
    }
    if taken.bytes == 0 {
        return Err("it reported that it moved nothing".to_owned());
    }
    if taken.far_user_us > taken.user_us || taken.far_sys_us > taken.sys_us {
        return Err("it reported more CPU time for a part than for the whole".to_owned());
    }
    Ok(Sample {
        wall,
        user: Duration::from_micros(taken.user_us),
        sys: Duration::from_micros(taken.sys_us),
        minor_faults: taken.minor_faults,
        major_faults: taken.major_faults,
        voluntary_switches: taken.voluntary,
        involuntary_switches: taken.involuntary,
        bytes: taken.bytes,
        calls: taken.calls,
        far_user: Duration::from_micros(taken.far_user_us),
        far_sys: Duration::from_micros(taken.far_sys_us),
        ..seen
    })
}

/// Parses the answer to `alias`; `None` if the question does not apply.
pub fn alias(line: &str) -> Result<Option<Alias>, String> {
    match line {
        "copied" => Ok(Some(Alias::Copied)),
        "shared" => Ok(Some(Alias::Shared)),
        "none" => Ok(None),
        _ => Err(format!("it answered {} instead of 'copied', 'shared' or 'none'", shown(line))),
    }
}

/// Parses the answer to `memory`, in bytes; 0 means unknown.
pub fn memory(line: &str) -> Result<Option<u64>, String> {
    let bytes = line.parse::<u64>().map_err(|e| format!("{}: {e}", shown(line)))?;
    Ok(Some(bytes).filter(|bytes| *bytes > 0))
}

/// Returns the line, truncated and escaped for a message.
pub fn shown(line: &str) -> String {
    const ENOUGH: usize = 80;
    let start: String = line.chars().take(ENOUGH).collect();
    let more = if start.len() < line.len() { "..." } else { "" };
    format!("{start:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn long() -> Sample {
        Sample { wall: Duration::from_secs(1), stolen_ticks: 3, ..Sample::default() }
    }

    fn line(wall_ns: u64, bytes: u64) -> String {
        format!(
            r#"{{"wall_ns":{wall_ns},"user_us":2,"sys_us":3,"minor_faults":4,"major_faults":5,"voluntary":6,"involuntary":7,"bytes":{bytes}}}"#
        )
    }

    #[test]
    fn a_hello_has_a_version_and_may_announce_faults() {
        assert_eq!(hello("thalweg-worker 1"), Ok(false));
        assert_eq!(hello("thalweg-worker 1 faults"), Ok(true));
        for wrong in ["", "hello", "thalweg-worker", "thalweg-worker 2", "thalweg-worker 1 x"] {
            assert!(hello(wrong).is_err(), "{wrong}");
        }
        assert!(hello("thalweg-worker 2").unwrap_err().contains("version"));
    }

    #[test]
    fn a_sample_has_every_number_in_its_place() {
        let taken = sample(&line(1000, 8), long()).unwrap();
        assert_eq!(taken.wall, Duration::from_micros(1));
        assert_eq!((taken.user, taken.sys), (Duration::from_micros(2), Duration::from_micros(3)));
        assert_eq!((taken.minor_faults, taken.major_faults), (4, 5));
        assert_eq!((taken.voluntary_switches, taken.involuntary_switches), (6, 7));
        assert_eq!((taken.bytes, taken.calls, taken.stolen_ticks), (8, None, 3));
        let counted = line(1000, 8).replace('}', r#","calls":9}"#);
        assert_eq!(sample(&counted, long()).unwrap().calls, Some(9));
        let parted = line(1000, 8).replace('}', r#","far_user_us":2,"far_sys_us":1}"#);
        let far = sample(&parted, long()).unwrap();
        assert_eq!((far.user, far.far_user), (Duration::from_micros(2), Duration::from_micros(2)));
        assert_eq!((far.sys, far.far_sys), (Duration::from_micros(3), Duration::from_micros(1)));
        let more = line(1000, 8).replace('}', r#","far_user_us":3}"#);
        assert!(sample(&more, long()).unwrap_err().contains("more CPU time"));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let lie = sample(&line(2_000_000_000, 8), long()).unwrap_err();
        assert!(lie.contains("2s") && lie.contains("1s"), "{lie}");
        assert!(sample(&line(0, 8), long()).is_err());
        assert!(sample(&line(1000, 0), long()).is_err());
        for wrong in ["", "ok", "{}", "[]", "{\"wall_ns\":1}"] {
            assert!(sample(wrong, long()).is_err(), "{wrong}");
        }
        assert!(sample(&line(1, 1).replace("\"bytes\":1", "\"bytes\":-1"), long()).is_err());
        assert!(sample(&line(1, 1).replace('}', ",\"more\":1}"), long()).is_err());
    }

    #[test]
    fn short_answers_are_the_words_of_the_protocol() {
        assert_eq!(done("ok"), Ok(()));
        assert!(done("OK").is_err());
        assert_eq!(alias("copied"), Ok(Some(Alias::Copied)));
        assert_eq!(alias("shared"), Ok(Some(Alias::Shared)));
        assert_eq!(alias("none"), Ok(None));
        assert!(alias("").is_err());
        assert_eq!(memory("17"), Ok(Some(17)));
        assert_eq!(memory("0"), Ok(None));
        assert!(memory("-1").is_err() && memory("").is_err());
    }

    proptest! {
        #[test]
        fn no_line_makes_us_panic(line in any::<String>()) {
            let _ = (hello(&line), done(&line), sample(&line, long()), alias(&line), memory(&line));
            prop_assert!(shown(&line).chars().count() < 1200);
        }

        #[test]
        fn every_number_a_worker_can_write_is_taken_or_refused(wall in any::<u64>(), bytes in any::<u64>()) {
            let taken = sample(&line(wall, bytes), long());
            let possible = wall > 0 && wall <= 1_000_000_000 && bytes > 0;
            prop_assert_eq!(taken.is_ok(), possible);
        }
    }
}
