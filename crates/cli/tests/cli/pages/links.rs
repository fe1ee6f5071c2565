//! Every relative link of a page leads to a file, and every anchor to a heading.

use super::{pages, root};

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Returns a page without code blocks and inline code, because brackets in code are not links.
fn without_code(text: &str) -> String {
    let mut kept = String::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let outside = line.split('`').step_by(2);
            outside.for_each(|part| kept.push_str(part));
            kept.push('\n');
        }
    }
    kept
}

/// Returns the targets of `[text](target)`, `src="target"` and `srcset="target"`.
fn targets(text: &str) -> Vec<String> {
    let text = without_code(text);
    let mut found = Vec::new();
    for (begin, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        for rest in text.split(begin).skip(1) {
            let target = rest.split(end).next().unwrap_or_default();
            found.push(target.split_whitespace().collect());
        }
    }
    found
}

/// Returns a heading as GitHub shows it, with the text of its links but without their targets.
fn shown(heading: &str) -> String {
    let mut text = heading.replace('`', "");
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    text.replace('[', "")
}

/// Returns GitHub's anchor of a heading: lowercase, hyphens instead of blanks, no punctuation.
fn anchor(heading: &str) -> String {
    let lower = shown(heading).trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the anchors of a page. The second heading with the same text gets the suffix `-1`.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut seen = HashMap::new();
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading);
        let earlier = seen.entry(name.clone()).or_insert(0);
        found.push(if *earlier == 0 { name } else { format!("{name}-{earlier}") });
        *earlier += 1;
    }
    found
}

/// Returns the reason why a link of this page is broken, or `None`.
fn broken(page: &Path, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { page.to_owned() } else { page.parent()?.join(path) };
    if !file.exists() {
        return Some("the file does not exist");
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    if anchor.is_empty() || !is_page || anchors(&file).iter().any(|name| name == anchor) {
        return None;
    }
    Some("the page has no such heading")
}

#[test]
fn every_relative_link_and_anchor_of_the_pages_resolves() {
    let mut all = pages();
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    all.extend(more.map(|name| root().join(name)));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for target in targets(&text) {
            count += 1;
            if let Some(reason) = broken(&page, &target) {
                wrong.push(format!("{}: {target}: {reason}", page.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn anchors_follow_the_rule_of_github() {
    assert_eq!(anchor(" Resume an interrupted copy"), "resume-an-interrupted-copy");
    assert_eq!(anchor(" `serve --hash`, and what it costs"), "serve---hash-and-what-it-costs");
    assert_eq!(anchor(" 64 B: [the ring](channel.md#ring)"), "64-b-the-ring");
}

#[test]
fn a_broken_link_is_reported() {
    let page: PathBuf = root().join("README.md");
    assert!(broken(&page, "docs/no-such-page.md").is_some());
    assert!(broken(&page, "docs/README.md#no-such-heading").is_some());
    assert!(broken(&page, "https://example.org/").is_none());
}
