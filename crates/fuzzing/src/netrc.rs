//! Files with user names and passwords: no input may crash the parser, and quoted values must be read as they were
//! written.

use std::{fs, os::unix::fs::PermissionsExt};

use thalweg_serve::client::Netrc;

/// Runs one input.
pub fn run(text: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("netrc");
    assert!(Netrc::read(&path).is_ok_and(|none| none.of("a").is_none()));
    fs::write(&path, text).expect("a file");
    for mode in [0o600, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        match Netrc::read(&path) {
            Ok(_) => assert_eq!(mode, 0o600),
            Err(error) => assert!(error.to_string().contains("netrc")),
        }
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(netrc) = Netrc::parse(text) else { return };
    // This host name is longer than the text, so no `machine` entry has it. Only a `default` entry can apply.
    let unnamed = "x".repeat(text.len() + 1);
    let of_all =
        netrc.of(&unnamed).map(|(login, password)| (login.to_owned(), password.to_owned()));
    for host in ["a", "A", "b.example"] {
        let Some((login, password)) = netrc.of(host) else {
            assert!(of_all.is_none(), "a default entry is of every host");
            continue;
        };
        let [user, secret] = [login, password].map(quoted);
        let again = Netrc::parse(&format!("machine {host} login {user} password {secret}"));
        assert_eq!(again.expect("quoted words").of(host), Some((login, password)));
    }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
