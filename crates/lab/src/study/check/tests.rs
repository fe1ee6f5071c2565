//! Tests of valid study files, and of every kind of error in one.

use super::*;
use crate::arms::CATALOGUE;

const GOOD: &str = r#"
schema = 1
id = "900"
title = "harness"
summary = "nothing against nothing"
[source]
title = "none"
parameters = { buffer = "16 MiB", runs = 1 }
[[source.table]]
name = "seconds"
columns = ["arm", "user", "system"]
rows = [["a", 0.0, 8.4]]
[[source.item]]
what = "program"
text = "a program"
arms = ["a"]
[[source.item]]
what = "system"
text = "a machine"
absent = "nobody has it"
[[cell]]
name = "c"
sizes = ["64KiB", "1GiB"]
quick_sizes = ["64KiB"]
loads = ["idle", "busy"]
arms = ["a", "b", "d"]
[[arm]]
name = "a"
work = "null"
[[arm]]
name = "b"
work = "null"
origin = "fair"
[[arm]]
name = "d"
work = "null"
[[claim]]
id = "900.1"
kind = "ratio"
text = "a is twice as fast as b"
published = [0.5, 0.6]
[[claim.check]]
test = "ratio"
arms = ["a", "b"]
at = { cell = "c", size = "64KiB", load = "busy" }
metric = "cpu"
within = [-inf, 0.5]
[[claim.check]]
test = "rows"
arms = ["a", "b"]
at = { cell = "c" }
published = { "64KiB" = 0.5, "1GiB" = 0.6 }
within = [0.8, 1.25]
[[claim.check]]
test = "rank-correlation"
arms = ["a", "b", "d"]
places = [{ cell = "c", size = "64KiB" }, { cell = "c", size = "1GiB" }]
within = [-1.0, 0.8]
[[claim.flip]]
test = "load-ratio"
arm = "a"
at = { cell = "c", size = "64KiB" }
loads = ["busy", "idle"]
within = [0.0, 1.0]
[[claim]]
id = "900.2"
kind = "number"
text = "it was fast"
not_runnable = "no absolute figure can be checked"
"#;

#[test]
fn a_right_file_is_read_whole() {
    let study = StudyFile::parse(GOOD, &CATALOGUE).unwrap();
    assert_eq!((study.arms.len(), study.claims[0].checks.len()), (3, 3));
    assert!(study.claims[0].checks[0].within()[0].is_infinite());
}

#[test]
fn a_cell_adds_to_the_parameters_of_its_arms() {
    let with = "with = { args = [\"b=2\"], speed = 2 }\n";
    let text = GOOD.replacen("sizes = [", &format!("{with}sizes = ["), 1).replacen(
        "work = \"null\"",
        "work = \"null\"\nwith = { args = [\"a=1\"], speed = 1, more = true }",
        1,
    );
    let study: StudyFile = toml::from_str(&text).unwrap();
    let both = |arm: usize| study.cells[0].parameters(&study.arms[arm]).to_string();
    assert_eq!(both(0), "args = [\"a=1\", \"b=2\"]\nmore = true\nspeed = 1\n");
    assert_eq!(both(1), "args = [\"b=2\"]\nspeed = 2\n");
}

#[test]
fn every_wrong_name_is_refused_with_what_there_is() {
    for (right, wrong, words) in [
        ("schema = 1", "schema = 2", "schema = 2"),
        ("id = \"900\"", "id = \"all\"", "an id consists"),
        ("title = \"harness\"", "title = \"harness\\u001b[31m\"", "no control characters"),
        ("runs = 1", "\"ru\\u0007ns\" = 1", "no control characters"),
        ("work = \"null\"\norigin", "work = \"nul\"\norigin", "unknown work \"nul\""),
        (
            "arms = [\"a\", \"b\", \"d\"]\n[[arm]]",
            "arms = [\"a\", \"b\", \"x\"]\n[[arm]]",
            "known: a, b, d",
        ),
        (
            "arms = [\"a\", \"b\", \"d\"]\n[[arm]]",
            "arms = [\"a\", \"b\"]\n[[arm]]",
            "no cell uses arm \"d\"",
        ),
        ("sizes = [\"64KiB\", \"1GiB\"]", "sizes = [\"64 heaps\", \"1GiB\"]", "is not a size"),
        ("quick_sizes = [\"64KiB\"]", "quick_sizes = [\"4KiB\"]", "is not in sizes"),
        ("quick_sizes = [\"64KiB\"]", "full_sizes = [\"4KiB\"]", "is not in sizes"),
        ("loads = [\"idle\", \"busy\"]", "loads = [\"lazy\"]", "line 25"),
        ("loads = [\"idle\", \"busy\"]", "loads = []", "needs arms, sizes and loads"),
        ("within = [-inf, 0.5]", "within = [2.0, 0.5]", "not a range"),
        ("within = [-inf, 0.5]", "within = [nan, 0.5]", "not a range"),
        ("within = [-inf, 0.5]", "within = [0.0, inf]", "no run could contradict"),
        ("within = [-1.0, 0.8]", "within = [2.0, 3.0]", "from -1 to 1"),
        (
            "loads = [\"busy\", \"idle\"]\nwithin",
            "loads = [\"idle\", \"idle\"]\nwithin",
            "listed twice",
        ),
        (
            "not_runnable = \"no absolute figure can be checked\"",
            "not_runnable = \" \"",
            "needs a reason",
        ),
        (
            "arms = [\"a\", \"b\"]\nat = { cell = \"c\", size",
            "arms = [\"a\", \"a\"]\nat = { cell = \"c\", size",
            "compared with itself",
        ),
        (
            "cell = \"c\", size = \"64KiB\", load = \"busy\"",
            "cell = \"c\", load = \"busy\"",
            "size is missing",
        ),
        (
            "size = \"64KiB\", load = \"busy\"",
            "size = \"64KiB\", load = \"quarter\"",
            "the load quarter",
        ),
        (
            "size = \"64KiB\", load = \"busy\"",
            "size = \"5GiB\", load = \"busy\"",
            "known: 64KiB, 1GiB",
        ),
        ("within = [-inf, 0.5]", "within = [0.95, 1.0]", "1.061 times the lower end"),
        ("within = [-inf, 0.5]", "within = [-1.0, 0.0]", "greater than 0"),
        (
            "[[claim.flip]]",
            "[[claim.wider]]\ntest = \"ratio\"\narms = [\"a\", \"x\"]\nat = { cell = \"c\", size = \"64KiB\" }\n\
             within = [0.0, 1.0]\n[[claim.flip]]",
            "unknown arm \"x\"",
        ),
        ("at = { cell = \"c\" }", "at = { cell = \"z\" }", "unknown cell \"z\""),
        ("\"1GiB\" = 0.6", "\"1GiB\" = 0.0", "a ratio above 0"),
        ("arms = [\"a\", \"b\", \"d\"]\nplaces", "arms = [\"a\", \"b\"]\nplaces", "three arms"),
        ("not_runnable = \"no absolute figure can be checked\"", "", "either checks or"),
        ("rows = [[\"a\", 0.0, 8.4]]", "rows = [[\"a\", 8.4]]", "fewer values"),
        ("id = \"900.2\"", "id = \"900.1\"", "twice"),
        ("what = \"program\"", "what = \"programme\"", "programme"),
        (
            "text = \"a program\"\narms = [\"a\"]",
            "text = \"a program\"\narms = [\"x\"]",
            "item \"a program\": unknown arm \"x\"",
        ),
        ("absent = \"nobody has it\"", "", "the reason why it is absent"),
        ("summary =", "sumary =", "sumary"),
        ("kind = \"ratio\"", "kind = \"ration\"", "known: number, ratio"),
        ("test = \"ratio\"", "test = \"probe\"\nprobe = \"none-such\"", "claim"),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let error = StudyFile::parse(&GOOD.replacen(right, wrong, 1), &CATALOGUE).unwrap_err();
        assert!(error.contains(words), "{wrong}: {error}");
    }
    let probe = "[[claim.check]]\ntest = \"probe\"\nprobe = \"none-such\"\nwithin = [0.0, 1.0]\n";
    let text = GOOD.replace("not_runnable = \"no absolute figure can be checked\"", probe);
    assert!(
        StudyFile::parse(&text, &CATALOGUE).unwrap_err().contains("unknown probe \"none-such\"")
    );
    for (rivals, words) in
        [("[]", "rivals"), ("[\"a\"]", "not the arm"), ("[\"x\"]", "unknown arm \"x\"")]
    {
        let best = format!(
            "[[claim.check]]\ntest = \"against-best\"\narm = \"a\"\nrivals = {rivals}\n\
             cells = [\"c\"]\nwithin = [0.0, 1.1]\n"
        );
        let text = GOOD.replace("not_runnable = \"no absolute figure can be checked\"", &best);
        let error = StudyFile::parse(&text, &CATALOGUE).unwrap_err();
        assert!(error.contains(words), "{rivals}: {error}");
    }
}

#[test]
fn an_arm_has_the_parameters_of_its_cell_unless_it_has_its_own() {
    let text = GOOD
        .replacen("loads =", "with = { residency = \"fresh\", read = true }\nloads =", 1)
        .replacen("origin = \"fair\"", "with = { read = false }", 1);
    let study: StudyFile = toml::from_str(&text).unwrap();
    let with = |arm: usize| study.cells[0].parameters(&study.arms[arm]).to_string();
    assert_eq!(with(0), "read = true\nresidency = \"fresh\"\n");
    assert_eq!(with(1), "read = false\nresidency = \"fresh\"\n");
}

#[test]
fn what_is_misspelt_in_an_arm_or_a_probe_is_refused_before_anything_runs() {
    let ends = "source = 'zero', sink = 'null'";
    for (work, with, words) in [
        ("transfer", format!("mechanism = 'splcie', {ends}"), "unknown mechanism \"splcie\""),
        ("transfer", format!("mechanism = 'splice', {ends}, pip = 1"), "pip"),
        ("transfer", format!("mechanism = 'splice', {ends}, tuning = {{ pip = 1 }}"), "no knob"),
        ("transfer", format!("mechanism = 'reflink', {ends}"), "does not support the pair"),
        ("memory", "kernel = 'libc', residncy = 'l1'".to_owned(), "residncy"),
        ("memory", "kernel = 'libc', residency = 'l1', sizes = 'all'".to_owned(), "memcpy-fleet"),
        ("memory", "kernel = 'libc', residency = 'l9'".to_owned(), "l9"),
        ("bulk", "arm = 'rong'".to_owned(), "unknown arm \"rong\""),
        ("program", "command = ['cp', '{source}', '{snik}']".to_owned(), "not contain {sink}"),
        ("worker", "program = 'x.c', cflag = ['-O3']".to_owned(), "cflag"),
        ("worker", "program = 'x.py', cflags = ['-O3']".to_owned(), "need a C source"),
        ("null", "speed = 1".to_owned(), "unknown parameter speed"),
    ] {
        let arm = format!("work = {work:?}\nwith = {{ {with} }}\norigin");
        let text = GOOD.replacen("work = \"null\"\norigin", &arm, 1);
        let error = StudyFile::parse(&text, &CATALOGUE).unwrap_err();
        assert!(error.contains("arm \"b\" in cell \"c\"") && error.contains(words), "{error}");
    }
    for (probe, with, words) in [
        ("alias", "mechanism = 'splcie', source = 'file', sink = 'pipe'", "splcie"),
        ("calls-per-buffer", "mechanism = 'sendfile', bufer = '4KiB'", "bufer"),
        ("vmsplice-directions", "n = 1", "unknown parameter n"),
        ("bulk-memory", "bytes = 1, way = { arm = 'rong' }", "rong"),
    ] {
        let check = format!(
            "[[claim.check]]\ntest = \"probe\"\nprobe = {probe:?}\nwith = {{ {with} }}\n\
             within = [0.0, 1.0]\n"
        );
        let text = GOOD.replace("not_runnable = \"no absolute figure can be checked\"", &check);
        let error = StudyFile::parse(&text, &CATALOGUE).unwrap_err();
        assert!(error.contains(words), "{probe}: {error}");
    }
}
