//! Options that a command does not support between machines.

use std::{fmt::Debug, iter};

/// Returns the first given option that is not among the supported fields. `usual`: the arguments without options.
/// Compares the `Debug` output of all fields, so that a new option cannot be forgotten.
pub fn unsupported(given: &impl Debug, usual: &impl Debug, supported: &[&str]) -> Option<String> {
    let (given, usual) = (format!("{given:#?}"), format!("{usual:#?}"));
    let pairs = iter::zip(fields(&given), fields(&usual));
    let mut used =
        pairs.filter(|((name, given), (_, usual))| !supported.contains(name) && given != usual);
    let ((_, given), (_, usual)) = used.next()?;
    let (line, _) = iter::zip(&given, &usual).find(|(given, usual)| given != usual)?;
    let name = line.trim().split(':').next().unwrap_or_default();
    Some(format!("--{}", name.replace('_', "-")))
}

/// Returns the fields of a pretty-printed struct: the name and the lines of each.
fn fields(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut fields: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '}', ')', ']'])) {
            Some(field) => {
                fields.push((field.split(':').next().unwrap_or_default(), vec![line]));
            }
            None => {
                if let Some((_, lines)) = fields.last_mut() {
                    lines.push(line);
                }
            }
        }
    }
    fields
}
