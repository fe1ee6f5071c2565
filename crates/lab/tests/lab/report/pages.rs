//! Pages and Markdown made of results, ordinary and odd.

use serde_json::{Value, json};
use std::{fs, path::PathBuf};
use thalweg_lab::{
    report::{ReportInput, drawings, html, markdown},
    study::{file::StudyFile, result::StudyResult},
};

use super::{
    fixture::{self, Extent},
    markup,
};

const STANDARD: Extent = Extent { sessions: 6, rounds: 15, seed: 7 };
const SMALL: Extent = Extent { sessions: 2, rounds: 3, seed: 3 };

fn study() -> StudyFile {
    let text = include_str!("../../data/studies/900.toml");
    toml::from_str(text).expect("the study of the tests")
}

fn input(result: StudyResult) -> ReportInput {
    ReportInput { result, origin: "studies/results/m/d/900.json".to_owned(), study: Some(study()) }
}

fn changed(change: impl FnOnce(&mut Value)) -> StudyResult {
    let mut json = fixture::json(SMALL);
    change(&mut json);
    serde_json::from_value(json).expect("still a result")
}

/// Returns the page and the drawings of its studies, one after the other.
fn page(inputs: &[ReportInput]) -> String {
    let mut page = html(inputs).expect("a page");
    markup::examine(&page);
    for drawn in drawings(inputs).expect("drawings") {
        markup::examine(&drawn.html);
        page.push_str(&drawn.html);
    }
    page
}

#[test]
fn a_standard_run_becomes_a_page_that_says_everything() {
    let page = page(&[input(fixture::result(STANDARD))]).replace("&#x2f;", "/");
    for words in [
        "1 reproduced",
        "2 contradicted",
        "1 undecided",
        "1 not runnable",
        "0.267 [0.259, 0.274]",
        "2.05",
        "from a memory file instead of /dev/zero",
        "An article that was never written",
        "8.412525",
        "io_uring_setup: EPERM",
        "thalweg study 900 --seed 7",
        "memcpy, the fastest baseline",
        "not stable, shared pages",
        "stable and private: read and send",
        "Use splice &lt;always&gt;: it is twice as fast.",
        "A: To send a file of 98 MB, use",
        "6.18.44",
        "65536 on a new pipe",
    ] {
        assert!(page.contains(words), "{words:?} is missing");
    }
    // One map for each metric and each list of sizes. The published ratio is a diamond, in the plot
    // and in its legend.
    assert_eq!(page.matches("<div class=\"map\">").count(), 4);
    assert!(page.matches("class=\"published\"").count() >= 4);
}

#[test]
fn a_result_without_its_study_file_still_has_a_page() {
    let mut alone = input(fixture::result(SMALL));
    alone.study = None;
    let page = page(&[alone]);
    assert!(!page.contains("What was published"));
    assert!(
        page.contains("What wins where")
            && page.contains("The fastest method, its lead, and what changes it")
    );
}

#[test]
fn one_session_has_no_winner() {
    let one = |sessions| page(&[input(fixture::result(Extent { sessions, ..STANDARD }))]);
    assert!(one(2).contains("class=\"win "), "two sessions have");
    assert!(!one(1).contains("class=\"win "));
}

#[test]
fn several_runs_of_a_study_are_shown_together_the_newest_first() {
    let older = changed(|json| {
        json["protocol"]["began"] = json!("2026-11-20T08:00:00Z");
        json["claims"][2]["verdict"] = json!("undecided");
        json["claims"][1]["verdict"] = json!("undecided");
    });
    let inputs = [input(older), input(fixture::result(SMALL))];
    let page = page(&inputs);
    assert_eq!(page.matches("class=\"study\"").count(), 1);
    let (new, old) =
        (page.find("2026-11-22 00:20 UTC, standard"), page.find("2026-11-20 08:00 UTC, standard"));
    assert!(new.expect("the newer run") < old.expect("the older run"));
    assert_eq!(page.matches("changes: treat it as undecided").count(), 1);
    assert_eq!(page.matches(">stable</td>").count(), 4);
    let text = markdown(&inputs);
    assert!(text.contains("2 runs, 4 of 5 verdicts stable.\n- 900.3: "), "{text}");
}

#[test]
fn a_run_on_another_machine_is_named_and_says_nothing_of_stability() {
    let elsewhere = changed(|json| {
        json["protocol"]["began"] = json!("2026-11-20T08:00:00Z");
        json["conditions"]["machine"]["cpu"] = json!("Another CPU");
        json["claims"][2]["verdict"] = json!("undecided");
    });
    let page = page(&[input(elsewhere), input(fixture::result(SMALL))]);
    assert!(page.contains("standard, Another CPU"), "the head of its column");
    assert_eq!(page.matches("changes: treat it as undecided").count(), 0);
    assert_eq!(page.matches(">one run</td>").count(), 5);
}

#[test]
fn names_are_never_markup() {
    let evil =
        "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}\u{202e}\u{0}";
    let long = format!("{evil}{}", "x".repeat(5000));
    let result = changed(|json| {
        replace_strings(json, &long);
        json["study"] = json!(long);
    });
    let mut input = input(result);
    input.origin = long.clone();
    input.study = None;
    let text = html(std::slice::from_ref(&input)).expect("a page").replace("{{ 7*7 }}", "");
    markup::examine(&text);
    assert!(text.contains("&lt;script&gt;alert(1)"));
    assert!(!text.contains(['\u{202e}', '\u{0}']));
    for drawn in drawings(std::slice::from_ref(&input)).expect("drawings") {
        assert_eq!(drawn.name, "study.0.html");
        markup::examine(&drawn.html.replace("{{ 7*7 }}", ""));
    }
    let markdown = markdown(&[input]);
    // The command is between backticks, where Markdown has no markup.
    let outside = markdown.lines().filter(|line| !line.starts_with("Repeat it: `"));
    assert!(
        outside.clone().count() > 5 && outside.into_iter().all(|line| !line.contains("<script"))
    );
}

/// Appends a text to every string, except where only certain words are valid.
fn replace_strings(value: &mut Value, text: &str) {
    const WORDS: [&str; 6] = ["load", "origin", "verdict", "metric", "began", "cell"];
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut().filter(|(key, _)| !WORDS.contains(&key.as_str())) {
                match value {
                    Value::String(old) => *old = format!("{old}{text}"),
                    other => {
                        let _ = key;
                        replace_strings(other, text);
                    }
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| match value {
            Value::String(old) => *old = format!("{old}{text}"),
            other => replace_strings(other, text),
        }),
        _ => {}
    }
}

#[test]
fn odd_results_have_pages_too() {
    let strip = |keys: &[&str]| changed(|json| keys.iter().for_each(|key| json[*key] = json!([])));
    let empty = strip(&["arms", "ratios", "claims", "missing", "probes"]);
    let one_session = fixture::result(Extent { sessions: 1, rounds: 1, seed: 1 });
    let no_samples = changed(|json| {
        for arm in json["arms"].as_array_mut().expect("arms") {
            arm["sessions"] = json!([]);
        }
    });
    let wild = changed(|json| {
        for arm in json["arms"].as_array_mut().expect("arms") {
            arm["gb_per_s"] = json!(1e308);
            arm["cpu_s_per_gb"] = json!(-1.0);
            arm["bytes"] = json!(0);
            arm["sessions"][0]["repeats"] = json!(0);
            arm["sessions"][0]["samples"][0]["bytes"] = json!(u64::MAX);
            arm["sessions"][0]["samples"][0]["wall"] = json!(1e12);
            arm["sessions"][0]["session"] = json!(u64::MAX);
        }
        json["probes"][0]["sessions"][0]["session"] = json!(u64::MAX);
        for ratio in json["ratios"].as_array_mut().expect("ratios") {
            ratio["lo"] = json!(0.0);
            ratio["hi"] = json!(1e300);
        }
        json["noise"] = json!(1e300);
        json["aa"] = Value::Null;
        json["null_seconds"] = Value::Null;
        json["protocol"]["took_seconds"] = json!(-1e300);
        json["conditions"] = json!([[[[[["deep"]]]]]]);
    });
    for result in [empty, strip(&["arms"]), strip(&["ratios"]), one_session, no_samples, wild] {
        let inputs = [input(result)];
        assert!(page(&inputs).contains("How it was measured"));
        assert!(markdown(&inputs).contains("## 900"));
    }
    assert!(page(&[]).contains("no results to show"));
    assert_eq!(markdown(&[]), "");
}

#[test]
fn markdown_is_short_and_says_what_promises_differ() {
    let text = markdown(&[input(fixture::result(SMALL))]);
    assert!(text.contains("| 900.1: splice is more than twice as fast as read and write | 2.05 | 0.267 [0.259, 0.274] | \u{2717} contradicted |"), "{text}");
    assert!(text.contains("other guarantee | not stable, shared pages |"), "{text}");
    assert!(text.contains("- not run: io\\_uring"), "{text}");
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells = line.replace("\\|", "").matches('|').count();
        assert!([7, 8].contains(&cells), "{line}");
    }
    assert!(text.len() < 16_000, "{} bytes", text.len());
}

#[test]
fn the_page_says_what_wins_by_how_much_and_what_flips_it() {
    let inputs = [input(fixture::result(STANDARD))];
    let page = html(&inputs).expect("a page").replace("&#x2f;", "/");
    let answers = page.split_once("id=\"answers\"").expect("the answers").1;
    let answers = answers.split_once("</section>").expect("their end").0;
    let row = |cell: &str| {
        let from = answers.find(&format!(">{cell}")).unwrap_or_else(|| panic!("{cell}: {answers}"));
        answers[from..].split_once("</tr>").expect("the end of the row").0
    };
    // At large sizes sendfile is fastest, but shares pages. The line also names the fastest copy
    // that shares none.
    let socket = row("file to socket, 4KiB to 1GB");
    for words in ["1MiB to 1GB: sendfile", "stable and private: read and send"] {
        assert!(socket.contains(words), "{words:?} is missing in {socket}");
    }
    assert!(row("zero to null, 16GiB").contains(">read-write 64 KiB</td>"), "{answers}");
    assert_eq!(answers.matches("<th scope=\"row\"").count(), 2, "loads share a line: {answers}");
    assert!(page.len() < 60_000 && !page.contains("<figure"), "{} bytes", page.len());
}

#[test]
fn every_claim_is_a_row_of_the_first_picture_with_a_line_for_each_machine() {
    let elsewhere = changed(|json| {
        json["protocol"]["began"] = json!("2026-11-20T08:00:00Z");
        json["conditions"]["machine"]["cpu"] = json!("Another CPU");
        json["claims"][2]["verdict"] = json!("undecided");
        json["claims"][4]["kind"] = json!("goal");
    });
    let here = changed(|json| json["claims"][4]["kind"] = json!("goal"));
    let page = page(&[input(elsewhere), input(here)]).replace("&#x2f;", "/");
    let (before, picture) = page.split_once("id=\"overview\"").expect("the picture");
    assert!(!before.contains("id=\"answers\""), "it comes first");
    let picture = picture.split_once("id=\"answers\"").expect("what wins comes next").0;
    let (claims, goals) = picture.split_once("Our own goals").expect("goals stand apart");
    assert!(claims.contains(">900.1</a>") && !claims.contains(">900.5</a>"), "{claims}");
    assert!(goals.contains(">900.5</a>") && !goals.contains(">900.1</a>"), "{goals}");
    assert!(claims.contains("<strong>B</strong> Another CPU"), "{claims}");
    let row = |id: &str| {
        let from = claims.find(&format!(">{id}</a>")).expect("its row");
        claims[from..].split_once("</tr>").expect("its end").0
    };
    assert_eq!(row("900.1").matches("class=\"seen\"").count(), 2);
    assert!(
        row("900.1").contains("same verdict on all 2 machines") && row("900.1").contains("<svg")
    );
    assert!(row("900.3").contains("verdicts differ between machines"), "{}", row("900.3"));
    // A number of bytes per call is not a ratio, so the row has its verdict, but no drawing.
    assert!(!row("900.4").contains("<svg") && row("900.4").contains("contradicted"));
}

#[test]
fn a_run_of_few_places_is_never_shown_in_place_of_a_whole_one() {
    let part = changed(|json| {
        json["protocol"]["began"] = json!("2026-11-23T08:00:00Z");
        let arms = json["arms"].as_array_mut().expect("arms");
        arms.truncate(1);
    });
    let text = markdown(&[input(part), input(fixture::result(SMALL))]);
    assert!(
        text.contains("2026-11-22 00:20 UTC; ") || text.contains("2026-11-22 00:20 UTC;"),
        "{text}"
    );
    let head = text.lines().find(|line| line.contains(" rounds each, "));
    assert!(head.is_some_and(|line| line.contains("2026-11-22")), "{head:?}");
}

/// The guide to claims shows docs/report.png. `make report` takes the picture after it writes the page.
#[test]
fn the_picture_of_the_report_shows_the_cards_of_the_report() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let [page, picture] = ["report.html", "report.png"].map(|name| fs::read(docs.join(name)));
    let (page, picture) = (page.expect("the page"), picture.expect("the picture"));
    let page = String::from_utf8(page).expect("text");
    let from = page.find("<header").expect("a header");
    let to = page.find("<section id=\"overview\"").expect("an overview after the cards");
    let mut crc = flate2::Crc::new();
    crc.update(&page.as_bytes()[from..to]);
    let chunk = format!("tEXtcards\0{:08x}", crc.sum());
    let found = picture.windows(chunk.len()).any(|bytes| bytes == chunk.as_bytes());
    assert!(found, "docs/report.png shows other cards: run `make report`");
}
