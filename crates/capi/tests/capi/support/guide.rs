//! Extracts the programs from the pages in docs/reference.

use super::root;
use std::fs;

/// Returns the code blocks of a page in this language, unchanged.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("../../docs/reference").join(page)).unwrap();
    let begin = format!("```{language}\n");
    let blocks = text.split(&begin).skip(1).map(|rest| rest.split_once("```").expect("its end").0);
    blocks.map(str::to_owned).collect()
}

/// Returns the complete programs of docs/reference/c.md, with numbered names. Leaves out `receive` and `send`, which
/// run only as a pair.
pub fn programs_in_c() -> Vec<(String, String)> {
    let alone = blocks("c.md", "c").into_iter().filter(|text| !text.starts_with("/*"));
    let named: Vec<_> = alone.zip(0..).map(|(text, n)| (format!("guide{n}"), text)).collect();
    assert!(named.len() >= 6, "{} programs in docs/reference/c.md", named.len());
    named
}
