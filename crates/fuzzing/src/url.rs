//! URLs: no input may crash the parser, and a relative reference never changes the server.

use std::os::unix::ffi::OsStrExt;

use thalweg_serve::{client::FetchUrl, manifest::ListRequest};

/// Runs one input: a URL and, after a line feed, references to resolve.
pub fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut lines = text.split('\n');
    let Ok(url) = FetchUrl::parse(lines.next().unwrap_or_default()) else { return };
    let shown = url.to_string();
    assert!(!shown.bytes().any(|byte| byte.is_ascii_control() || byte == b' '), "{shown:?}");
    assert_eq!(FetchUrl::parse(&shown).expect("its own text").to_string(), shown);
    let _ = (
        url.as_directory().to_string(),
        url.manifest(&ListRequest::default()).to_string(),
        url.host(),
        url.authorization(),
    );
    for name in [url.name(), url.directory_name()].into_iter().flatten() {
        assert!(!name.as_bytes().contains(&b'/') && !name.is_empty(), "{}", name.display());
    }
    let user = FetchUrl::parse(&shown).expect("its own text").for_user("a b:%", "c:\u{e9}@");
    assert!(user.is_beside(&url) && user.authorization().is_some(), "{user}");
    let again = url.clone().for_user_of(&user);
    assert!(again.authorization().is_some() && again.is_beside(&url));
    for reference in lines.take(8) {
        let Ok(joined) = url.join(reference) else { continue };
        let text = joined.to_string();
        assert!(!text.bytes().any(|byte| byte.is_ascii_control() || byte == b' '), "{text:?}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-?#=%".contains(&byte);
        let is_relative = reference.bytes().all(is_plain) && !reference.starts_with("//");
        assert!(!is_relative || joined.is_beside(&url), "{shown} {reference} {text}");
    }
}
