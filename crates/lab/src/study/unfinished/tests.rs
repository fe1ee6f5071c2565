//! Tests which saved sessions belong to one run.

use super::*;
use crate::arms::CATALOGUE;
use thalweg_measure::preset::Preset;

const STUDY: &str = "schema = 1\nid = \"t\"\ntitle = \"t\"\nsummary = \"t\"\n[source]\ntitle = \"t\"\n\
    [[cell]]\nname = \"c\"\nsizes = [\"4KiB\"]\narms = [\"a\"]\n[[arm]]\nname = \"a\"\nwork = \"worker\"\n\
    with = { program = \"a.c\" }\n";

struct Bench {
    folder: tempfile::TempDir,
    settings: Settings,
}

impl Bench {
    fn new() -> Self {
        let bench =
            Self { folder: tempfile::tempdir().unwrap(), settings: Settings::of(Preset::QUICK, 7) };
        bench.file("t.toml", STUDY);
        bench.file("a.c", "int main(void) { return 0; }");
        bench
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn run(&self) -> UnfinishedRun {
        let at = self.folder.path();
        let loaded = Loaded::read(&at.join("t.toml"), &CATALOGUE).unwrap();
        UnfinishedRun::of(&at.join("state"), &loaded, &self.settings, Path::new("/bin/sh"), at)
    }

    fn save(&self, session: usize, seed: u64) {
        let log = SessionLog { session, null_seconds: 0.0, places: Vec::new(), probes: Vec::new() };
        let (began, conditions) = (String::new(), serde_json::Value::Null);
        let saved = SavedSession { began, seed, conditions, took_seconds: 1.0, log };
        self.run().save(&saved).unwrap();
    }
}

#[test]
fn sessions_are_continued_without_a_gap_and_with_one_seed() {
    let bench = Bench::new();
    assert!(bench.run().sessions(None).is_empty());
    for session in [0, 1, 3] {
        bench.save(session, 7);
    }
    assert_eq!(bench.run().sessions(None).len(), 2, "session 2 is missing");
    bench.save(2, 8);
    assert_eq!(bench.run().sessions(Some(7)).len(), 2, "session 2 has another seed");
    assert!(bench.run().sessions(Some(8)).is_empty());
    fs::write(bench.run().path(1), "{").unwrap();
    assert_eq!(bench.run().sessions(None).len(), 1, "session 1 is damaged");
    bench.run().remove().unwrap();
    assert!(!bench.folder.path().join("state").exists());
    bench.run().remove().unwrap();
}

#[test]
fn another_study_program_or_parameter_has_its_own_sessions() {
    let mut bench = Bench::new();
    bench.save(0, 7);
    let first = bench.run().folder;
    bench.settings.seed = 9;
    assert_eq!(bench.run().folder, first, "the seed is compared with the sessions");
    bench.settings.rounds += 1;
    assert!(bench.run().sessions(None).is_empty());
    bench.settings.rounds -= 1;
    bench.file("a.c", "int main(void) { return 1; }");
    assert!(bench.run().sessions(None).is_empty());
    bench.file("a.c", "int main(void) { return 0; }");
    assert_eq!(bench.run().sessions(None).len(), 1);
    bench.file("t.toml", &STUDY.replace("title = \"t\"", "title = \"u\""));
    assert!(bench.run().sessions(None).is_empty());
}
