//! What a file is, by its name, and which of its compressed siblings a client takes.

use std::path::Path;

/// The value of Content-Type.
pub fn content_type(path: &Path) -> String {
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let is_text = kind.type_() == "text" || kind.subtype() == "javascript";
    if is_text { format!("{kind}; charset=utf-8") } else { kind.to_string() }
}

/// How a sibling is compressed: the name in headers, and what its file name ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    pub name: &'static str,
    pub suffix: &'static str,
}

/// The smallest first, as a rule.
pub const CODINGS: &[Coding] = &[
    Coding { name: "br", suffix: ".br" },
    Coding { name: "zstd", suffix: ".zst" },
    Coding { name: "gzip", suffix: ".gz" },
];

/// The codings that an Accept-Encoding allows, ours in order. `*` is not taken as a wish for any.
pub fn accepted(header: &str) -> impl Iterator<Item = Coding> {
    let is_wanted = |coding: &Coding| {
        header.split(',').any(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, ""));
            name.trim().eq_ignore_ascii_case(coding.name) && !is_nothing(weight)
        })
    };
    CODINGS.iter().copied().filter(is_wanted)
}

/// Whether `q=0`, `q=0.0` forbids it.
fn is_nothing(weight: &str) -> bool {
    let value = weight.trim().to_ascii_lowercase();
    let value = value.strip_prefix("q=").and_then(|value| value.parse::<f32>().ok());
    value.is_some_and(|value| value <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_its_alphabet_and_the_unknown_is_bytes() {
        let of = |name: &str| content_type(Path::new(name));
        assert_eq!(of("a.html"), "text/html; charset=utf-8");
        assert_eq!(of("a.JS"), "text/javascript; charset=utf-8");
        assert_eq!(of("a.png"), "image/png");
        assert_eq!(of("a"), "application/octet-stream");
        assert_eq!(of("a.no such"), "application/octet-stream");
    }

    #[test]
    fn a_coding_is_taken_where_it_is_allowed() {
        let names = |header| accepted(header).map(|coding| coding.name).collect::<Vec<_>>();
        assert_eq!(names("gzip, deflate, br, zstd"), ["br", "zstd", "gzip"]);
        assert_eq!(names("br;q=0, GZIP;q=0.5, *"), ["gzip"]);
        assert_eq!(names("identity"), Vec::<&str>::new());
    }
}
