//! A profile that changes while the server runs.

use std::{fs::File, net::TcpStream};

use thalweg_core::{Facts, Profile, Transfer};

use super::support::{TestSite, address, noise};

/// Returns a profile in which this mechanism is the fastest from a file to a socket.
fn in_favour_of(mechanism: &str, facts: &Facts) -> Profile {
    let options = facts.source.options();
    let cell = |name: &str, ratio: f64, load: &str| {
        let ratio = serde_json::json!({ "ratio": ratio, "lo": ratio, "hi": ratio });
        let cell = serde_json::json!({
            "source": facts.source.key(), "sink": facts.sink.key(), "options": [options, ""],
            "mechanism": name, "tuning": {}, "size": 1 << 20, "load": load, "wall": ratio, "cpu": ratio,
            "noise": 0.03, "ns_per_byte": 1.0, "sessions": 3, "rounds": 9,
            "at": "2026-11-24T00:00:00Z",
        });
        serde_json::from_value(cell).unwrap()
    };
    // The machine may be busy while the test runs.
    let cells =
        ["idle", "loaded"].map(|load| [cell("read-write", 1.0, load), cell(mechanism, 0.2, load)]);
    Profile { cells: cells.concat(), ..Profile::new() }
}

#[test]
fn a_new_measurement_counts_from_the_next_answer_on() {
    let place = TestSite::with(|options| (options.metrics, options.threads) = (true, Some(1)));
    let bytes = noise(1 << 20);
    let path = place.file("large", &bytes);
    let count = |page: &str, mechanism: &str| {
        let begin = format!("thalweg_transfers_total{{mechanism=\"{mechanism}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&begin)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let socket = TcpStream::connect(address(place.running())).unwrap();
    let file = File::open(path).unwrap();
    let facts = Facts::of(&Transfer::between(&file, &socket).unwrap());
    let measured = in_favour_of("mmap-write", &facts);
    let chosen = [("read-write", None), ("mmap-write", Some(measured)), ("read-write", None)];
    for (answers, (mechanism, profile)) in (0..).zip(chosen) {
        // The worker applies the profile before it accepts a later connection.
        place.running().choose_by(profile);
        let both = ["read-write", "mmap-write"];
        let all = |page: &str| both.map(|one| count(page, one)).iter().sum::<u64>();
        let before = count(&place.counts(|page| all(page) == answers), mechanism);
        assert!(place.get("/large", "").body == bytes);
        let page = place.counts(|page| all(page) == answers + 1);
        assert_eq!(count(&page, mechanism), before + 1, "{mechanism}");
    }
}
