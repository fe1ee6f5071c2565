//! Generates results with a realistic structure. The figures are made up.
#![allow(dead_code)] // Each test binary uses a part.

use serde_json::{Value, json};
use thalweg_lab::study::result::StudyResult;

/// A multiplicative congruential generator: fast, and random enough for these tests.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Returns a number around 1, with a long upper tail like that of measured times.
    pub fn jitter(&mut self, width: f64) -> f64 {
        let tail = if self.share() < 0.02 { 1.0 + 3.0 * self.share() } else { 1.0 };
        (1.0 + width * (self.share() + self.share() - 1.0)) * tail
    }
}

/// An arm of the generator: name, GB/s, CPU seconds per GB, whether it guarantees a private copy
/// (`None` for a baseline), and its origin.
pub struct Arm(pub &'static str, pub f64, pub f64, pub Option<bool>, pub &'static str);

/// The arms of `zero to null`; the first is the reference.
pub const ZERO: [Arm; 6] = [
    Arm("read-write 16 MiB", 21.0, 0.047, Some(true), "published"),
    Arm("read-write 64 KiB", 62.0, 0.0161, Some(true), "fair"),
    Arm("splice", 5.6, 0.176, Some(true), "published"),
    Arm("splice, two threads", 5.9, 0.21, Some(true), "published"),
    Arm("splice, 1 MiB pipe", 6.9, 0.144, Some(true), "fair"),
    Arm("fill memory", 74.0, 0.0135, None, "baseline"),
];

/// The arms of `file to socket`.
pub const SOCKET: [Arm; 5] = [
    Arm("read and send", 3.1, 0.31, Some(true), "published"),
    Arm("sendfile", 3.7, 0.22, Some(false), "published"),
    Arm("splice through a pipe", 3.4, 0.235, Some(false), "fair"),
    Arm("mapped and written", 3.05, 0.3, Some(true), "fair"),
    Arm("memcpy", 17.0, 0.059, None, "baseline"),
];

const SIZES: [(&str, u64); 8] = [
    ("4KiB", 4 << 10),
    ("64KiB", 64 << 10),
    ("1MiB", 1 << 20),
    ("7MB", 7_000_000),
    ("16MiB", 16 << 20),
    ("98MB", 98_000_000),
    ("256MiB", 256 << 20),
    ("1GB", 1_000_000_000),
];

/// The size of a generated result.
#[derive(Clone, Copy)]
pub struct Extent {
    pub sessions: usize,
    pub rounds: usize,
    pub seed: u64,
}

/// Returns a complete result of study 900.
pub fn result(extent: Extent) -> StudyResult {
    serde_json::from_value(json(extent)).expect("the generator writes what the result reads")
}

/// Returns that result as JSON.
pub fn json(extent: Extent) -> Value {
    let mut dice = Dice::new(extent.seed);
    let (mut arms, mut ratios) = (Vec::new(), Vec::new());
    for (load, slower) in [("idle", 1.0), ("busy", 1.6)] {
        let place =
            json!({"cell": "zero to null", "size": "16GiB", "bytes": 16_u64 << 30, "load": load});
        add(&ZERO, (&place, slower), (extent, &mut dice), (&mut arms, &mut ratios));
    }
    for (size, bytes) in SIZES {
        let place = json!({"cell": "file to socket", "size": size, "bytes": bytes, "load": "idle"});
        let small = 1.0 + 30_000.0 / bytes as f64;
        add(&SOCKET, (&place, small), (extent, &mut dice), (&mut arms, &mut ratios));
    }
    let comparisons = ratios.len();
    json!({
        "study": "900", "schema": 1, "title": "splice from /dev/zero to /dev/null (made up)",
        "conditions": conditions(), "protocol": protocol(extent), "arms": arms,
        "missing": [{"arm": "io_uring", "cell": "zero to null", "size": "16GiB", "bytes": 16_u64 << 30,
                     "load": "idle", "reason": "io_uring_setup: EPERM (kernel.io_uring_disabled = 2)"}],
        "ratios": ratios, "aa": {"ratio": 1.004, "lo": 0.985, "hi": 1.021}, "noise": 0.03,
        "null_seconds": 1.3e-6, "comparisons": comparisons, "probes": probes(), "claims": claims(),
    })
}

/// Adds arms in a place, and their ratios to the first one.
fn add(
    arms: &[Arm],
    (place, slower): (&Value, f64),
    (extent, dice): (Extent, &mut Dice),
    (all, ratios): (&mut Vec<Value>, &mut Vec<Value>),
) {
    let bytes = place["bytes"].as_u64().expect("bytes");
    for arm in arms {
        // Mechanisms that share pages have set-up costs, so they are slower at small sizes.
        let set_up = if arm.3 == Some(false) { 1.0 + 40_000.0 / bytes as f64 } else { 1.0 };
        let (rate, cpu) = (arm.1 / slower / set_up, arm.2 * slower.sqrt() * set_up);
        let marked = usize::from(dice.share() < 0.3);
        let sessions: Vec<Value> = (0..extent.sessions)
            .map(|n| session(n, (rate, cpu, bytes), (extent.rounds, marked), dice))
            .collect();
        let promises = arm.3.map(|kept| json!({"stable": kept, "private": kept, "durable": false}));
        let alias = arm.3.map(|kept| if kept { "copied" } else { "shared" });
        let mut entry = json!({
            "name": arm.0, "origin": arm.4, "promises": promises, "alias": alias, "note": null,
            "gb_per_s": middle(&sessions, |s| number(s, "bytes") / 1e9 / number(s, "wall")),
            "cpu_s_per_gb": middle(&sessions, |s| (number(s, "user") + number(s, "sys")) / number(s, "bytes") * 1e9), "user_s_per_gb": cpu * 0.07, "faults_per_gb": 0.0,
            "calls_per_gb": 1e9 / 65536.0, "marked": marked, "sessions": sessions,
        });
        merge(&mut entry, place);
        all.push(entry);
        let pair = [("wall", arms[0].1 / arm.1 * set_up), ("cpu", arm.2 / arms[0].2 * set_up)];
        for (metric, ratio) in pair.iter().filter(|_| arm.0 != arms[0].0) {
            let (lo, hi) =
                (ratio * (0.99 - 0.03 * dice.share()), ratio * (1.01 + 0.03 * dice.share()));
            let verdict = match ratio {
                r if *r < 0.97 && hi < 1.0 => "faster",
                r if *r > 1.03 && lo > 1.0 => "slower",
                _ => "no-difference-shown",
            };
            let mut entry = json!({
                "a": arm.0, "b": arms[0].0, "metric": metric, "ratio": ratio, "lo": lo, "hi": hi,
                "verdict": verdict, "same_promises": arm.3 == arms[0].3,
            });
            merge(&mut entry, place);
            ratios.push(entry);
        }
    }
}

fn session(
    number: usize,
    (rate, cpu, bytes): (f64, f64, u64),
    (rounds, marked): (usize, usize),
    dice: &mut Dice,
) -> Value {
    let repeats = ((rate * 1e9 * 0.02 / bytes as f64) as u64).max(1);
    let drift = dice.jitter(0.04).min(1.2);
    let samples: Vec<Value> = (0..rounds).map(|round| {
        let moved = bytes * repeats;
        let gigabytes = moved as f64 / 1e9;
        let cpu = gigabytes * cpu * drift * dice.jitter(0.05);
        let round_off = |seconds: f64| (seconds * 1e7).round() / 1e7;
        let wall = round_off(gigabytes / rate * drift * dice.jitter(0.1));
        json!({"round": round, "wall": wall, "user": round_off(cpu * 0.07), "sys": round_off(cpu * 0.93), "bytes": moved})
    }).collect();
    let marks: Vec<&str> =
        if marked == 1 && number == 0 { vec!["round 2: 3 ticks stolen"] } else { vec![] };
    json!({"session": number, "repeats": repeats.min(u64::from(u32::MAX)), "samples": samples, "marks": marks})
}

fn number(sample: &Value, key: &str) -> f64 {
    sample[key].as_f64().expect("a number")
}

/// Returns the median over all samples of all sessions.
fn middle(sessions: &[Value], of: impl Fn(&Value) -> f64) -> f64 {
    let samples =
        sessions.iter().flat_map(|session| session["samples"].as_array().expect("samples"));
    thalweg_measure::stats::median(&samples.map(of).collect::<Vec<_>>()).expect("samples")
}

fn merge(into: &mut Value, from: &Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else { return };
    into.extend(from.clone());
}

fn conditions() -> Value {
    json!({
        "at": "2026-11-22T00:20:30Z",
        "machine": {"affinity": "0-1", "capabilities": "1ff", "cores": "2", "cpu": "A made-up processor",
                    "hypervisor": "KVM", "kernel": "6.18.44", "libc": "glibc 2.36", "thp": "madvise"},
        "governor": null, "load_average": "0.31 0.42 0.40", "pressure": {"cpu": 0.12, "io": 0.0, "memory": 0.0},
        "file_systems": [["/var/tmp", "ext4", "rw,relatime"], ["/dev/shm", "tmpfs", "rw"]],
    })
}

fn protocol(extent: Extent) -> Value {
    json!({
        "preset": "standard", "sessions": extent.sessions, "rounds": extent.rounds, "pause_seconds": 15.0,
        "sample_seconds": 0.02, "seed": extent.seed, "pinned": [], "command": "thalweg study 900 --seed 7",
        "began": "2026-11-22T00:20:30Z", "took_seconds": 312.0,
    })
}

fn probes() -> Value {
    json!([{"claim": "900.4", "check": 0, "probe": "splice-lengths", "sessions": [
        {"session": 0, "finding": {"numbers": [65536.0, 1_048_576.0], "text": "65536 on a new pipe, 1048576 on one of 1 MiB"}, "missing": null},
        {"session": 1, "finding": null, "missing": "F_SETPIPE_SZ: EPERM"},
    ]}])
}

fn claims() -> Value {
    let evidence = |text: &str, [measured, lo, hi]: [f64; 3], within: Value, verdict: &str| json!({"text": text, "measured": measured, "lo": lo, "hi": hi, "within": within, "verdict": verdict});
    let claim = |id: &str,
                 kind: &str,
                 text: &str,
                 published: Value,
                 figures: [Value; 3],
                 verdict: &str,
                 reason: &str| {
        let [measured, lo, hi] = figures;
        json!({"id": id, "kind": kind, "text": text, "published": published, "predicate": null,
               "source_check": null, "measured": measured, "lo": lo, "hi": hi, "verdict": verdict,
               "reason": reason, "evidence": [], "flips": []})
    };
    let mut first = claim(
        "900.1",
        "ratio",
        "splice is more than twice as fast as read and write",
        json!("2.05"),
        [json!(0.267), json!(0.259), json!(0.274)],
        "contradicted",
        "The whole interval lies below 2: with the article's own parameters read and write are 3.7 times faster.",
    );
    first["predicate"] = json!("read-write / splice is at least 2");
    first["source_check"] = json!("consistent");
    first["evidence"] = json!([evidence(
        "read-write 16 MiB / splice",
        [0.267, 0.259, 0.274],
        json!([2.0, null]),
        "contradicted"
    )]);
    first["flips"] = json!([
        evidence(
            "from a memory file instead of /dev/zero",
            [2.22, 2.2, 2.24],
            json!([2.0, null]),
            "reproduced"
        ),
        evidence(
            "read-write with 4 KiB buffers",
            [1.51, 1.44, 1.6],
            json!([2.0, null]),
            "contradicted"
        ),
    ]);
    let mut second = claim(
        "900.2",
        "ratio",
        "two threads are hardly faster than one",
        json!("0.967"),
        [json!(0.95), json!(0.88), json!(1.01)],
        "undecided",
        "The interval reaches below 0.9.",
    );
    second["predicate"] = json!("0.9 to 1.05");
    second["evidence"] =
        json!([evidence("two threads / one", [0.95, 0.88, 1.01], json!([0.9, 1.05]), "undecided")]);
    let mut third = claim(
        "900.3",
        "conclusion",
        "sendfile takes less time at every size",
        Value::Null,
        [json!(0.84), json!(0.82), json!(0.87)],
        "reproduced",
        "At all eight sizes the interval lies below 1.",
    );
    third["evidence"] = json!([
        evidence(
            "sendfile / read and send at 7MB",
            [0.84, 0.82, 0.87],
            json!([0.0, 1.0]),
            "reproduced"
        ),
        evidence(
            "sendfile / read and send at 1GB",
            [0.83, 0.81, 0.85],
            json!([0.0, 1.0]),
            "reproduced"
        ),
    ]);
    let mut fourth = claim(
        "900.4",
        "mechanism",
        "every splice call moves 64 KiB",
        json!("65536"),
        [json!(65536.0), Value::Null, Value::Null],
        "contradicted",
        "A pipe of 1 MiB moves 1048576 bytes a call.",
    );
    fourth["source_check"] = json!("ok-but-dated");
    let fifth = claim(
        "900.5",
        "number",
        "22 % more packets through a virtual switch",
        json!("22 %"),
        [Value::Null, Value::Null, Value::Null],
        "not-runnable",
        "It needs a network card of its own and a packet generator.",
    );
    json!([first, second, third, fourth, fifth])
}
