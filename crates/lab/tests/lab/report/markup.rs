//! Requirements for a page, checked tag by tag. If HTML Tidy is installed, it checks the page too.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::{Command, Stdio},
};

/// A tag with its attributes, as written.
#[derive(Debug)]
pub struct Tag {
    pub name: String,
    pub closes: bool,
    pub attributes: BTreeMap<String, String>,
    /// The text up to the next tag.
    pub text: String,
}

/// Elements without an end tag.
const VOID: [&str; 2] = ["meta", "br"];

/// Returns the tags of a page. The report's pages quote every attribute and escape every `<` in
/// text.
pub fn tags(page: &str) -> Vec<Tag> {
    let body = page.split_once("<!DOCTYPE html>").expect("a doctype").1;
    body.split('<').skip(1).map(tag).collect()
}

fn tag(piece: &str) -> Tag {
    let (inside, text) = piece.split_once('>').unwrap_or_else(|| panic!("an open tag: <{piece}"));
    let closes = inside.starts_with('/');
    let inside = inside.trim_matches('/').trim();
    let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
    let mut attributes = BTreeMap::new();
    while let Some((key, after)) = rest.trim_start().split_once("=\"") {
        let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("a quote in <{piece}"));
        assert!(
            attributes.insert(key.to_owned(), value.to_owned()).is_none(),
            "{key} twice: <{piece}"
        );
        rest = after;
    }
    assert!(rest.trim().is_empty(), "{rest:?} in <{piece}");
    Tag { name: name.to_owned(), closes, attributes, text: text.to_owned() }
}

/// Checks all requirements for a page.
pub fn examine(page: &str) {
    let tags = tags(page);
    stays_alone(page, &tags);
    is_balanced(&tags);
    names_are_unique_and_lead_somewhere(&tags);
    headings_go_down_one_by_one(&tags);
    can_be_heard(&tags);
    tidy(page);
}

fn opening<'t>(tags: &'t [Tag], name: &'t str) -> impl Iterator<Item = &'t Tag> {
    tags.iter().filter(move |tag| !tag.closes && tag.name == name)
}

/// Checks that the page has no script, no reference to anything outside, and no NaN or infinity as
/// a number.
fn stays_alone(page: &str, tags: &[Tag]) {
    const FORBIDDEN: [&str; 9] =
        ["script", "link", "img", "iframe", "object", "embed", "base", "form", "image"];
    for tag in tags {
        assert!(!FORBIDDEN.contains(&tag.name.as_str()), "{tag:?}");
        for (key, value) in &tag.attributes {
            assert!(!key.starts_with("on") && key != "style" && key != "src", "{tag:?}");
            assert!(!key.contains("href") || value.starts_with('#'), "{tag:?}");
            let is_number = tag.name != "meta"
                && ["d", "x", "y", "width", "height", "viewBox"].contains(&key.as_str());
            assert!(!is_number || !(value.contains("NaN") || value.contains("inf")), "{tag:?}");
        }
    }
    let style = opening(tags, "style").map(|tag| tag.text.as_str()).collect::<String>();
    for outside in ["url(", "@import", "http:", "https:", "//"] {
        assert!(!style.contains(outside), "{outside} in the style sheet");
    }
    assert!(!page.contains("{{") && !page.contains("{%"), "a template shows through");
}

fn is_balanced(tags: &[Tag]) {
    let mut open: Vec<&str> = Vec::new();
    for tag in tags.iter().filter(|tag| !VOID.contains(&tag.name.as_str())) {
        if tag.closes {
            assert_eq!(open.pop(), Some(tag.name.as_str()), "{tag:?}");
        } else if !["path", "rect"].contains(&tag.name.as_str()) {
            open.push(&tag.name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

fn names_are_unique_and_lead_somewhere(tags: &[Tag]) {
    let mut ids = BTreeSet::new();
    for id in tags.iter().filter_map(|tag| tag.attributes.get("id")) {
        assert!(ids.insert(id.as_str()), "{id} twice");
        assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{id:?}");
    }
    for tag in tags {
        if let Some(target) = tag.attributes.get("href") {
            assert!(ids.contains(target.trim_start_matches('#')), "{target} leads nowhere");
        }
        for key in ["aria-labelledby", "aria-describedby"] {
            let id = tag.attributes.get(key).map(String::as_str);
            assert!(id.is_none_or(|id| ids.contains(id)), "{id:?} names nothing");
        }
    }
}

fn headings_go_down_one_by_one(tags: &[Tag]) {
    let level = |tag: &Tag| match tag.name.strip_prefix('h').map(str::parse::<u32>) {
        Some(Ok(level)) if !tag.closes => Some(level),
        _ => None,
    };
    let levels: Vec<u32> = tags.iter().filter_map(level).collect();
    assert_eq!(levels.first(), Some(&1));
    assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1);
    for pair in levels.windows(2) {
        assert!(pair[1] <= pair[0] + 1, "h{} after h{}", pair[1], pair[0]);
    }
}

/// Checks that a screen reader finds a language, landmarks, table headers with a scope, and a text
/// for every drawing.
fn can_be_heard(tags: &[Tag]) {
    assert_eq!(opening(tags, "html").next().expect("html").attributes["lang"], "en");
    for landmark in ["header", "nav", "main", "footer"] {
        assert_eq!(opening(tags, landmark).count(), 1, "{landmark}");
    }
    let first_link = opening(tags, "a").next().expect("the skip link");
    assert_eq!(first_link.attributes["href"], "#main");
    for head in opening(tags, "th") {
        assert!(head.attributes.contains_key("scope"), "{head:?}");
    }
    assert_eq!(opening(tags, "table").count(), opening(tags, "caption").count());
    let spoken = opening(tags, "svg").filter(|svg| !svg.attributes.contains_key("aria-hidden"));
    let spoken: Vec<&Tag> = spoken.collect();
    assert!(spoken.iter().all(|svg| svg.attributes["role"] == "img"), "{spoken:?}");
    assert!(spoken.iter().all(|svg| !svg.attributes["aria-label"].is_empty()), "{spoken:?}");
    // Every drawing has a title, and the page has one more.
    assert_eq!(opening(tags, "title").count(), spoken.len() + 1);
    assert!(opening(tags, "desc").all(|words| words.text.len() > 20));
    assert_eq!(opening(tags, "desc").count(), spoken.len());
    each_figure_has_a_table(tags);
}

fn each_figure_has_a_table(tags: &[Tag]) {
    let mut rows = None;
    for tag in tags {
        match (tag.name.as_str(), tag.closes) {
            ("figure", false) => rows = Some(0),
            ("tr", false) => rows = rows.map(|rows| rows + 1),
            ("figure", true) => assert!(rows.take().is_some_and(|rows| rows > 1), "no table"),
            _ => {}
        }
    }
}

/// Checks that HTML Tidy reports no errors.
fn tidy(page: &str) {
    let command = Command::new("tidy")
        .args(["-errors", "-quiet", "--drop-empty-elements", "no"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        thalweg_testing::skip("report", "no HTML Tidy (Debian package tidy)");
        return;
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(page.as_bytes()).expect("tidy reads it all"));
        let output = child.wait_with_output().expect("its output");
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaints.trim().is_empty() && output.status.success(), "{complaints}");
    });
}
