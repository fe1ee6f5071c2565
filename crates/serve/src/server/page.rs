//! A directory listing as HTML: without scripts, for small screens, and with a dark mode.

use std::{ffi::OsStr, fmt::Write, path::Path};

use thalweg_core::{escape::html, quantity};

use super::entry::{ListingEntry, ListingKind};
use crate::{http::condition::in_seconds, manifest::encoded};

/// Content security policy of the page: it may load nothing.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.1rem;overflow-wrap:anywhere}
table{width:100%;border-collapse:collapse}
th{text-align:left;font-weight:normal;opacity:.7}
td,th{padding:.35rem .5rem;border-bottom:1px solid #8883}
td:first-child{overflow-wrap:anywhere;width:100%}
td:nth-child(n+2),th:nth-child(n+2){white-space:nowrap;text-align:right;font-variant-numeric:tabular-nums}
a{display:block;text-decoration:none}a:hover,a:focus{text-decoration:underline}
p a{display:inline}
footer{margin-top:1rem;opacity:.7;font-size:.9rem}footer a{display:inline}
@media(max-width:34rem){td:nth-child(3),th:nth-child(3){display:none}}";

/// Returns the start of the page of the directory at this path, up to the rows. `root`: name of the served directory.
pub fn top(root: &str, path: &Path) -> String {
    let mut page =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let name = path.file_name().map_or(root.into(), OsStr::to_string_lossy);
    let title = html(&name);
    // Writing into a `String` never fails.
    let _ = writeln!(
        page,
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{}</h1>\n\
         <p><a href=\"?tar\" download=\"{title}.tar\">Download all (.tar)</a></p>\n\
         <table><thead><tr><th>Name<th>Size<th>Modified (UTC)</thead><tbody>",
        crumbs(root, path)
    );
    if path.parent().is_some() {
        page.push_str("<tr><td><a href=\"../\">..</a><td><td>\n");
    }
    page
}

/// Returns the row of an entry.
pub fn row(entry: &ListingEntry) -> String {
    let slash = if entry.kind == ListingKind::Directory { "/" } else { "" };
    let size = entry.size.map(quantity::bytes).unwrap_or_default();
    format!(
        "<tr><td><a href=\"{}\">{}{slash}</a><td>{size}<td>{}\n",
        entry.path,
        html(&entry.name),
        time(entry.mtime)
    )
}

/// The end of a page, after the rows.
pub const BOTTOM: &str = "</tbody></table>\n<footer>This list as <a href=\"?json\">JSON</a>; \
     <a href=\"?manifest\">manifest</a> of all files in this directory and below</footer></body></html>\n";

/// Returns the path from the root to this directory, with a link for each name.
fn crumbs(root: &str, path: &Path) -> String {
    let root = html(root.trim_end_matches('/'));
    let mut line = format!("<a style=\"display:inline\" href=\"/\">{root}/</a>");
    let mut address = String::from("/");
    for name in path {
        address += &encoded(Path::new(name));
        address.push('/');
        let name = html(&name.to_string_lossy());
        let _ = write!(line, "<a style=\"display:inline\" href=\"{address}\">{name}/</a>");
    }
    line
}

/// Formats a time to the minute. Empty if an HTTP date cannot express it.
fn time(seconds: i64) -> String {
    let Some(time) = in_seconds(seconds) else { return String::new() };
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = httpdate::fmt_http_date(time);
    let words: Vec<&str> = date.split([' ', ':']).collect();
    match words[..] {
        [_, day, month, year, hour, minute, ..] => format!("{day} {month} {year} {hour}:{minute}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_markup_or_leads_elsewhere() {
        let name = "<script>\"'&javascript:";
        let entry = ListingEntry {
            name: name.to_owned(),
            path: encoded(Path::new(name)),
            kind: ListingKind::File,
            size: Some(2048),
            mtime: 784_111_777,
        };
        let page = top("root", Path::new(name)) + &row(&entry) + BOTTOM;
        assert!(!page.contains("<script") && !page.contains("\"javascript:"));
        assert!(page.contains("&lt;script&gt;&quot;&#39;&amp;javascript:</a>"));
        assert!(page.contains("06 Nov 1994 08:49") && page.contains("2.0 KiB"), "{page}");
        assert!(page.contains("href=\"%3Cscript%3E%22%27%26javascript%3A\""));
    }

    #[test]
    fn a_page_has_the_name_of_its_directory_and_offers_all_of_it() {
        let (root, below) = (top("photos", Path::new("")), top("photos", Path::new("2024/<may>")));
        assert!(root.contains("<title>photos</title>") && root.contains("href=\"/\">photos/</a>"));
        assert!(root.contains("download=\"photos.tar\">Download all (.tar)</a>"), "{root}");
        assert!(below.contains("<title>&lt;may&gt;</title>"), "{below}");
        assert!(below.contains("download=\"&lt;may&gt;.tar\""), "{below}");
    }
}
