//! Tests with arms that open on this machine, and with arms that do not.

use super::*;
use crate::arms::CATALOGUE;

#[test]
fn what_is_found_in_several_cells_is_said_once() {
    let mut told = FoundProblems::default();
    for (cell, what) in [("a", "x"), ("b", "y"), ("c", "x")] {
        told.add(cell, what.to_owned());
    }
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        ["test cases \"a\", \"c\", x", "test case \"b\", y"]
    );
}

/// Checks a study with one arm and one probe. The study file is written into `folder`.
fn rehearsed(folder: &Path, arm: &str, probe: &str) -> Rehearsal {
    let text = format!(
        "schema = 1\nid = \"t\"\ntitle = \"t\"\nsummary = \"t\"\n[source]\ntitle = \"t\"\n\
         [[cell]]\nname = \"c\"\nsizes = [\"4KiB\"]\narms = [\"a\"]\n[[arm]]\nname = \"a\"\n{arm}\n\
         [[claim]]\nid = \"t.1\"\nkind = \"number\"\ntext = \"t\"\n[[claim.check]]\ntest = \"probe\"\n\
         within = [0.0, 1.0]\n{probe}\n"
    );
    let path = folder.join("t.toml");
    fs::write(&path, text).unwrap();
    let loaded = Loaded::read(&path, &CATALOGUE).unwrap();
    Rehearsal::of(&loaded, &CATALOGUE, Path::new("thalweg"), folder).unwrap()
}

const ARM: &str = "work = \"null\"";
const PROBE: &str = "probe = \"vmsplice-directions\"";

#[test]
fn what_is_right_and_does_not_open_here_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.c"), "int main(void) { retrun 0; }").unwrap();
    let found =
        rehearsed(folder.path(), "work = \"worker\"\nwith = { program = \"broken.c\" }", PROBE);
    assert!(found.missing.len() == 1, "{found:?}");
    assert!(found.missing[0].contains("cannot build") && found.missing[0].contains("retrun"));
    let copy = "work = \"transfer\"\nwith = { mechanism = \"read-write\", source = \"file\", sink = \"file\", place = \"nofs\" }";
    let found = rehearsed(folder.path(), copy, PROBE);
    assert!(found.missing[0].contains("no nofs here"), "{found:?}");
    assert_eq!(rehearsed(folder.path(), ARM, PROBE), Rehearsal::default());
    assert_eq!(thalweg_testing::names(folder.path()), ["broken.c", "t.toml"], "nothing is left");
}
