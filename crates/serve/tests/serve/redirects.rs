//! Redirects: their targets, and the servers that receive the password.

use std::io::Write;

use thalweg_serve::client::{Extra, FetchOptions};

use super::fetch::{LEN, get, is_whole};
use crate::support::{
    fetch::options,
    liar::{LyingServer, honest, send},
};
use thalweg_testing::noise;

#[test]
fn redirects_are_followed_and_secrets_stay_with_their_server() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(1000, 11);
    let own = bytes.clone();
    let other =
        LyingServer::new(move |asked, stream| send(stream, &honest(asked, &own, "\"a\""), LEN));
    let (there, turn) = (other.url("there"), "HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: ");
    let server = LyingServer::new(move |asked, stream| {
        let location = if asked.path == "/x" { "/y".to_owned() } else { there.clone() };
        drop(stream.write_all(format!("{turn}{location}\r\n\r\n").as_bytes()));
    });
    let headers =
        vec![("Authorization".to_owned(), "secret".to_owned()), ("X".to_owned(), "y".to_owned())];
    let options = FetchOptions { extra: Extra { headers, wants_digest: false }, ..options() };
    get(&server.url("x"), &place.path().join("f"), &options).unwrap();
    is_whole(place.path(), &bytes);
    assert!(server.asked().iter().all(|asked| asked.get("authorization") == Some("secret")));
    assert_eq!(
        (other.asked()[0].get("authorization"), other.asked()[0].get("x")),
        (None, Some("y"))
    );
}

#[test]
fn a_target_that_is_not_ascii_is_requested_byte_by_byte() {
    let place = tempfile::tempdir().unwrap();
    let server = LyingServer::new(|asked, stream| {
        let head = match asked.path.as_str() {
            "/x" => {
                "HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: /caf\u{e9}?\u{20ac}=%41\r\n\r\n"
            }
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
        };
        drop(stream.write_all(head.as_bytes()));
    });
    get(&server.url("x"), &place.path().join("f"), &options()).unwrap();
    assert_eq!(server.asked()[1].path, "/caf%C3%A9?%E2%82%AC=%41");
}

#[test]
fn user_and_password_follow_redirects_to_the_same_server_and_no_others() {
    let other =
        LyingServer::new(|asked, stream| send(stream, &honest(asked, b"other", "\"a\""), LEN));
    let there = other.url("there");
    let server = LyingServer::new(move |asked, stream| {
        let host = asked.get("host").unwrap();
        let location = match asked.path.as_str() {
            "/x" => format!("http://{host}/y"),
            "/y" => "/z".to_owned(),
            "/away" => there.clone(),
            _ => return send(stream, &honest(asked, b"own", "\"a\""), LEN),
        };
        let head = format!("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n");
        drop(stream.write_all(head.as_bytes()));
    });
    let place = tempfile::tempdir().unwrap();
    for (path, expected) in [("x", &b"own"[..]), ("away", b"other")] {
        let url = server.url(path).replace("http://", "http://u:p@");
        get(&url, &place.path().join("f"), &options()).unwrap();
        is_whole(place.path(), expected);
    }
    assert!(server.asked().iter().all(|asked| asked.get("authorization") == Some("Basic dTpw")));
    assert_eq!((server.asked().len(), other.asked()[0].get("authorization")), (4, None));
}
