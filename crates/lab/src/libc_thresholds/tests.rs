use super::*;
use judge::tests::judged;

fn tunable(name: &str, now: u64) -> Tunable {
    Tunable { name: name.to_owned(), now, least: 0x200, most: 1 << 40 }
}

fn effective(tunables: Vec<Tunable>) -> Effective {
    Effective { loader: PathBuf::new(), is_of_others: false, thresholds: Vec::new(), tunables }
}

fn crossover(tunable: &'static str, bytes: Option<u64>) -> Crossover {
    Crossover { tunable, way: "a".into(), from: "b".into(), among: [1, 2], bytes }
}

#[test]
fn candidates_are_caches_and_crossovers_that_change_something() {
    let caches = [(1, 48 << 10), (2, 1 << 20), (3, 32 << 20)];
    let caches = caches.map(|(level, bytes)| Cache { level, bytes });
    let crossovers = [crossover(MOVSB, Some(24 << 10)), crossover(STREAM, None)];
    let all = effective(vec![tunable(MOVSB, 1 << 20), tunable(STREAM, 5)]);
    let texts = all.candidates(&caches, &crossovers);
    let texts: Vec<&str> = texts.iter().map(|candidate| candidate.text.as_str()).collect();
    let expected = [
        format!("{MOVSB}=24576"),
        format!("{MOVSB}=49152"),
        // A quarter of the last cache, the default of newer versions of glibc.
        format!("{STREAM}=8388608"),
        format!("{STREAM}=33554432"),
    ];
    assert_eq!(texts, expected);
    let narrow = Tunable { most: 0x300, ..tunable(MOVSB, 0x240) };
    assert!(effective(vec![narrow]).candidates(&caches, &crossovers).is_empty());
    assert!(effective(Vec::new()).candidates(&caches, &crossovers).is_empty());
}

#[test]
fn the_best_of_each_and_both_together_are_measured_again() {
    let candidate =
        |tunable, value: u64| ThresholdCandidate { tunable, text: format!("{tunable}={value}") };
    let all = [candidate(MOVSB, 1), candidate(MOVSB, 2), candidate(STREAM, 3)];
    let tried = |times: [[f64; 5]; 3]| {
        all.iter().zip(times).map(|(c, times)| judged(&c.text, times)).collect::<Vec<_>>()
    };
    let good = [0.5, 1.0, 1.0, 1.0, 1.0];
    let both = finalists(&all, &tried([[0.8, 1.0, 1.0, 1.0, 1.0], good, good]));
    let texts: Vec<&str> = both.iter().map(|candidate| candidate.text.as_str()).collect();
    assert_eq!(texts[..2], [all[1].text.as_str(), &all[2].text]);
    assert_eq!(texts[2], format!("{MOVSB}=2:{STREAM}=3"));
    let one = finalists(&all, &tried([[1.0; 5], [0.5, 2.0, 1.0, 1.0, 1.0], good]));
    assert_eq!(one, [all[2].clone()]);
    assert!(finalists(&all, &tried([[1.0; 5]; 3])).is_empty());
}

#[test]
fn a_program_without_a_loader_has_no_thresholds() {
    let none = Effective::now(Path::new("/no/such")).unwrap_err();
    assert!(none.contains("/no/such"), "{none}");
}

/// The loader of this test binary is also that of the system's shell, so both list equal
/// thresholds.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn a_static_program_shows_the_thresholds_of_other_programs() {
    let test = "a_static_program_shows_the_thresholds_of_other_programs";
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("p.c"), folder.path().join("p"));
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let mut compiler = std::process::Command::new("cc");
    let built = compiler.arg("-static").arg(&source).arg("-o").arg(&program).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return thalweg_testing::skip(test, "no C compiler that links statically");
    }
    let own = Effective::now(Path::new("/proc/self/exe")).unwrap();
    let found = Effective::now(&program).unwrap();
    assert_eq!((own.is_of_others, found.is_of_others), (false, true));
    assert_eq!((&found.loader, &found.thresholds), (&own.loader, &own.thresholds));
}
