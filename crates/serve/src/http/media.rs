//! The media type of a file by its name, and the compressed variants that a client accepts.

use std::path::Path;

/// Returns the value of `Content-Type`.
pub fn content_type(path: &Path) -> String {
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let is_text = kind.type_() == "text" || kind.subtype() == "javascript";
    if is_text { format!("{kind}; charset=utf-8") } else { kind.to_string() }
}

/// A content coding of compressed variants: its name in headers, and the suffix of their file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    pub name: &'static str,
    pub suffix: &'static str,
}

/// The supported codings. The one that usually gives the smallest variant comes first.
pub const CODINGS: &[Coding] = &[
    Coding { name: "br", suffix: ".br" },
    Coding { name: "zstd", suffix: ".zst" },
    Coding { name: "gzip", suffix: ".gz" },
];

/// Returns the codings that an `Accept-Encoding` header allows, in the order of [`CODINGS`]. `*` selects none of them.
pub fn accepted(header: &str) -> impl Iterator<Item = Coding> {
    let is_wanted = |coding: &Coding| {
        header.split(',').any(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, ""));
            name.trim().eq_ignore_ascii_case(coding.name) && !is_nothing(weight)
        })
    };
    CODINGS.iter().copied().filter(is_wanted)
}

/// Returns `true` if the weight is zero (`q=0`, `q=0.0`), which forbids the coding.
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
