//! Short notation for pairs of endpoints: `file -> file, pipe; pipe -> file`.

use thalweg_core::Kind;

/// Formats the pairs, grouped by source in the order of the manual. Returns `every pair` for all of them.
pub fn brief(pairs: &[(Kind, Kind)]) -> String {
    if pairs.len() == Kind::ALL.len() * Kind::ALL.len() {
        return "every pair".to_owned();
    }
    let mut groups = Vec::new();
    for source in Kind::ALL {
        let sinks = pairs.iter().filter(|(from, _)| *from == source);
        let sinks: Vec<&str> = sinks.map(|(_, to)| to.name()).collect();
        if !sinks.is_empty() {
            groups.push(format!("{source} -> {}", sinks.join(", ")));
        }
    }
    groups.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_grouped_by_source() {
        use Kind::{File, Pipe};
        assert_eq!(
            brief(&[(File, File), (File, Pipe), (Pipe, File)]),
            "file -> file, pipe; pipe -> file"
        );
        assert_eq!(brief(&[]), "");
        let all: Vec<_> =
            Kind::ALL.iter().flat_map(|a| Kind::ALL.iter().map(|b| (*a, *b))).collect();
        assert_eq!(brief(&all), "every pair");
    }
}
