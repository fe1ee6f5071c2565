//! Invalid requests, one test each: the server refuses the request, closes the connection, and serves
//! another client.

use super::support::TestSite;

fn is_refused(request: &str, status: u16) {
    let place = TestSite::new();
    place.file("file", "text");
    let mut client = place.connect();
    let answer = client.ask(request);
    assert_eq!(answer.status, status, "{request:.60}");
    assert_eq!(answer.field("Connection"), Some("close"));
    assert!(client.is_at_end());
    assert_eq!(place.get("/file", "").text(), "text");
}

macro_rules! refused {
    ($($name:ident: $status:literal, $request:expr;)*) => {
        $(
            #[test]
            fn $name() {
                is_refused(&$request, $status);
            }
        )*
    };
}

/// Returns a request for the file with these additional header lines.
fn with(fields: &str) -> String {
    format!("GET /file HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// Returns a request for this target.
fn of(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

refused! {
    a_length_beside_chunks_is_refused: 400, with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n");
    chunks_beside_a_length_are_refused: 400, with("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n");
    two_lengths_are_refused: 400, with("Content-Length: 1\r\nContent-Length: 2\r\n");
    a_list_of_lengths_is_refused: 400, with("Content-Length: 1, 1\r\n");
    a_length_with_a_sign_is_refused: 400, with("Content-Length: +1\r\n");
    no_host_is_refused: 400, "GET /file HTTP/1.1\r\n\r\n";
    two_hosts_are_refused: 400, with("Host: a\r\n");
    bare_line_feeds_are_refused: 400, "GET /file HTTP/1.1\nHost: a\n\n";
    one_bare_line_feed_in_the_middle_is_refused: 400, "GET /file HTTP/1.1\r\nHost: a\nA: b\r\n\r\n";
    a_folded_line_is_refused: 400, with(" b: c\r\n");
    a_line_folded_by_a_tab_is_refused: 400, with("\tb: c\r\n");
    a_space_before_the_colon_is_refused: 400, "GET /file HTTP/1.1\r\nHost : a\r\n\r\n";
    a_header_of_64_kib_is_refused: 431, with(&format!("A: {}\r\n", "a".repeat(1 << 16)));
    a_target_of_64_kib_is_refused: 414, of(&format!("/{}", "a".repeat(1 << 16)));
    a_nul_in_a_header_is_refused: 400, with("A: b\0c\r\n");
    a_nul_in_the_target_is_refused: 400, of("/fi\0le");
    an_escaped_nul_is_refused: 400, of("/fi%00le");
    nothing_but_nuls_is_refused: 400, "\0\0\0\0\r\n\r\n";
    an_escape_of_no_digits_is_refused: 400, of("/fi%zzle");
    an_escape_that_ends_early_is_refused: 400, of("/file%");
    the_folder_above_is_refused: 400, of("/../secret");
    the_folder_above_in_escapes_is_refused: 400, of("/%2e%2e/secret");
    the_folder_above_behind_another_is_refused: 400, of("/x/%2E%2E/../secret");
    a_body_that_is_to_be_kept_is_refused: 405,
        "POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    an_unknown_method_is_refused: 501, "BREW /file HTTP/1.1\r\nHost: a\r\n\r\n";
    an_unknown_version_is_refused: 505, "GET /file HTTP/3.0\r\nHost: a\r\n\r\n";
}
