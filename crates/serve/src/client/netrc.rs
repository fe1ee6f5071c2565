//! User names and passwords of servers, from the file that ftp(1), wget and curl also read.

use std::{io::ErrorKind, path::Path};

use thalweg_core::{
    failed::quoted,
    trusted_file::{TrustError, open_any},
};

use super::FetchError;

/// The contents of a netrc file.
#[derive(Clone, Debug, Default)]
pub struct Netrc(Vec<NetrcEntry>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NetrcEntry {
    /// `None` for `default`, which matches every server that no earlier entry names.
    machine: Option<String>,
    login: String,
    password: String,
}

impl Netrc {
    /// Reads the file; a missing file counts as empty. As with ftp(1), a file that other users can read is an error,
    /// because they know its passwords. A file of another user is an error too.
    pub fn read(path: &Path) -> Result<Self, FetchError> {
        let name = quoted(path);
        let usage = |why: &str| FetchError::Usage(format!("{name}: {why}"));
        let (file, stat) = match open_any(path) {
            Err(TrustError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(Self::default());
            }
            Err(TrustError::Untrusted { why, .. }) => return Err(usage(&why.to_string())),
            opened => opened.map_err(|error| FetchError::Usage(error.to_string()))?,
        };
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(usage("the file belongs to another user; use --no-netrc to ignore it"));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(usage(
                "other users can read the file; run chmod 600, or use --no-netrc to ignore it",
            ));
        }
        let text = std::io::read_to_string(file).map_err(|error| usage(&error.to_string()))?;
        Self::parse(&text).map_err(|why| usage(&why))
    }

    /// Returns the user name and password for a server.
    pub fn of(&self, host: &str) -> Option<(&str, &str)> {
        let is_its = |entry: &&NetrcEntry| {
            entry.machine.as_ref().is_none_or(|machine| machine.eq_ignore_ascii_case(host))
        };
        self.0.iter().find(is_its).map(|entry| (&*entry.login, &*entry.password))
    }

    /// Parses the contents of a netrc file. The error quotes no value, because a value may be a password.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut entries, mut words) = (Vec::<NetrcEntry>::new(), NetrcWords(text));
        while let Some(word) = words.next_word()? {
            let mut value = || words.next_word()?.ok_or_else(|| format!("no value after '{word}'"));
            match word.as_str() {
                "machine" => {
                    entries.push(NetrcEntry { machine: Some(value()?), ..NetrcEntry::default() });
                }
                "default" => entries.push(NetrcEntry::default()),
                "macdef" => words.skip_macro(),
                "login" | "user" | "password" | "passwd" | "account" => {
                    let value = value()?;
                    let entry = entries.last_mut();
                    let entry = entry.ok_or_else(|| format!("'{word}' before any 'machine'"))?;
                    match word.as_str() {
                        "login" | "user" => entry.login = value,
                        "password" | "passwd" => entry.password = value,
                        _ => {}
                    }
                }
                _ => return Err("the file contains an unknown keyword".to_owned()),
            }
        }
        Ok(Self(entries))
    }
}

/// Splits text into words, bare or in double quotes. Skips `#` comments up to the end of the line.
struct NetrcWords<'a>(&'a str);

impl NetrcWords<'_> {
    fn next_word(&mut self) -> Result<Option<String>, String> {
        loop {
            self.0 = self.0.trim_start();
            match self.0.strip_prefix('#') {
                Some(comment) => self.0 = comment.split_once('\n').map_or("", |(_, rest)| rest),
                None => break,
            }
        }
        let Some(quoted) = self.0.strip_prefix('"') else {
            let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
            let (word, rest) = self.0.split_at(end);
            self.0 = rest;
            return Ok((!word.is_empty()).then(|| word.to_owned()));
        };
        let (mut word, mut letters) = (String::new(), quoted.char_indices());
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Ok(Some(word));
                }
                '\\' => word.extend(letters.next().map(|(_, letter)| match letter {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    letter => letter,
                })),
                letter => word.push(letter),
            }
        }
        Err("unterminated quote".to_owned())
    }

    /// Skips a macro, which ends at an empty line.
    fn skip_macro(&mut self) {
        self.0 = self.0.split_once("\n\n").map_or("", |(_, rest)| rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_server_has_its_user_and_others_the_default() {
        let text = "# mine\nmachine a login u password \"p w\\\"\"\n\nmacdef init\ncd /x\nmachine no\n\n\
                    machine B\n\tlogin v passwd w account z\ndefault login anonymous password me@";
        let netrc = Netrc::parse(text).unwrap();
        assert_eq!(netrc.of("a"), Some(("u", "p w\"")));
        assert_eq!(netrc.of("b"), Some(("v", "w")));
        assert_eq!(netrc.of("no"), Some(("anonymous", "me@")));
        assert_eq!(Netrc::parse("machine a login u").unwrap().of("b"), None);
        for wrong in ["machine", "login u", "machine a password \"x", "machine a pass word", "x"] {
            assert!(Netrc::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused_and_none_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("netrc");
        assert!(Netrc::read(&path).unwrap().of("a").is_none());
        fs::write(&path, "machine a login u password p").unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Netrc::read(&path).is_ok(), is_read, "{mode:o}");
        }
    }
}
