//! `--chown` and `--chmod`: owners and modes that replace those of the source.

use clap::Args;
use rustix::fs::Mode;
use std::ffi::OsStr;
use thalweg_serve::remote::{decode, encode};
use thalweg_sys::user::{User, group_id};
use thalweg_tree::{GivenAttributes, ModeChange};

use crate::exit::{CommandFailure, Exit};

/// Attributes in place of those of the source.
#[derive(Args, Clone, Debug, Default)]
pub struct GivenArgs {
    /// Give entries of DST this owner and group: USER, USER:GROUP or :GROUP
    #[arg(long, value_name = "OWNER", help_heading = "Attributes")]
    chown: Option<String>,
    /// Change modes, as chmod does; D for directories and F for files, such as D755,F644
    #[arg(long, value_name = "MODES", help_heading = "Attributes")]
    chmod: Option<String>,
}

/// Owner and group of `--chown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GivenOwner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl GivenArgs {
    /// Returns `true` if neither option is given.
    pub fn is_empty(&self) -> bool {
        self.chown.is_none() && self.chmod.is_none()
    }

    /// Resolves user and group names on this machine. `is_encoded`: `true` if another thalweg process encoded the
    /// options with [`words`](Self::words).
    pub fn attributes(&self, is_encoded: bool) -> Result<GivenAttributes, CommandFailure> {
        let plain = |text: &String| {
            if is_encoded {
                decode(OsStr::new(text), None).display().to_string()
            } else {
                text.clone()
            }
        };
        let usage = |option: &str, why: String| {
            CommandFailure::new(Exit::Usage, format!("{option}: {why}"))
        };
        let owner = self.chown.as_ref().map(|text| parse_owner(&plain(text)));
        let owner = owner.transpose().map_err(|why| usage("--chown", why))?.unwrap_or_default();
        let modes = self.chmod.as_ref().map(|text| parse_modes(&plain(text)));
        let modes = modes.transpose().map_err(|why| usage("--chmod", why))?.unwrap_or_default();
        Ok(GivenAttributes { uid: owner.uid, gid: owner.gid, modes })
    }

    /// Returns these options as words without characters that a shell interprets. The other machine resolves the names.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let options = [("--chown", &self.chown), ("--chmod", &self.chmod)];
        let given = options.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        given.map(|(name, text)| format!("{name}={}", encode(OsStr::new(text))))
    }
}

/// Parses `USER`, `USER:GROUP` or `:GROUP`, each as a name or a number.
fn parse_owner(text: &str) -> Result<GivenOwner, String> {
    let (user, group) = text.split_once(':').map_or((text, ""), |(user, group)| (user, group));
    // To chown(2), the largest number means "unchanged".
    let number = |name: &str| name.parse::<u32>().ok().filter(|number| *number != u32::MAX);
    let find_user = |name: &str| {
        let found = User::find(name).map_err(|errno| format!("user '{name}': {errno}"))?;
        found.map(|user| user.uid).ok_or_else(|| format!("unknown user '{name}'"))
    };
    let find_group = |name: &str| {
        let found = group_id(name).map_err(|errno| format!("group '{name}': {errno}"))?;
        found.ok_or_else(|| format!("unknown group '{name}'"))
    };
    let id = |name: &str, find: &dyn Fn(&str) -> Result<u32, String>| match number(name) {
        _ if name.is_empty() => Ok(None),
        Some(number) => Ok(Some(number)),
        None => find(name).map(Some),
    };
    let owner = GivenOwner { uid: id(user, &find_user)?, gid: id(group, &find_group)? };
    if owner.uid.is_none() && owner.gid.is_none() {
        return Err("expected USER, USER:GROUP or :GROUP".to_owned());
    }
    Ok(owner)
}

/// Parses mode changes such as `D755,F644` or `Du=rwx,go-w`. The syntax is that of chmod, with an optional prefix: D
/// for directories, F for other entries.
fn parse_modes(text: &str) -> Result<Vec<ModeChange>, String> {
    text.split(',').map(parse_mode).collect()
}

fn parse_mode(text: &str) -> Result<ModeChange, String> {
    let invalid = || format!("'{text}': expected a mode such as D755, F644 or go-w");
    let (directories, rest) = match text.as_bytes().first() {
        Some(b'D') => (Some(true), &text[1..]),
        Some(b'F') => (Some(false), &text[1..]),
        _ => (None, text),
    };
    // `from_str_radix` accepts a sign: `+111` is neither an octal mode nor a symbolic one.
    if !rest.starts_with('+')
        && let Ok(mode) = u32::from_str_radix(rest, 8)
    {
        let fits = mode <= 0o7777;
        let change = ModeChange { directories, clear: 0o7777, set: mode, set_if_executable: 0 };
        return fits.then_some(change).ok_or_else(invalid);
    }
    let cut = rest.find(['+', '-', '=']).ok_or_else(invalid)?;
    let (classes, operation) = rest.split_at(cut);
    let mut class = 0;
    for letter in classes.chars() {
        class |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return Err(invalid()),
        };
    }
    // Without a class (u, g, o or a), bits of the umask do not change, as in chmod and rsync.
    let (class, cleared) = match class {
        0 => (0o7777 & !umask(), 0o777),
        class => (class, class & 0o777),
    };
    let (mut bits, mut if_executable) = (0, 0);
    for letter in operation[1..].chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => if_executable |= 0o111,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            _ => return Err(invalid()),
        }
    }
    let (bits, if_executable) = (bits & class, if_executable & class);
    Ok(match operation.as_bytes()[0] {
        b'+' => ModeChange { directories, clear: 0, set: bits, set_if_executable: if_executable },
        b'-' => {
            ModeChange { directories, clear: bits | if_executable, set: 0, set_if_executable: 0 }
        }
        _ => ModeChange {
            directories,
            clear: cleared | bits & 0o7000,
            set: bits,
            set_if_executable: if_executable,
        },
    })
}

/// Returns the umask: the mode bits that new files do not get. umask(2) returns the old value only if it sets a new
/// one. No thread that creates files runs yet, so no file is created with the new value.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        let change = |text| parse_mode(text).unwrap();
        let octal =
            ModeChange { directories: Some(true), clear: 0o7777, set: 0o755, set_if_executable: 0 };
        assert_eq!(change("D755"), octal);
        assert_eq!((change("go-w").clear, change("go-w").set), (0o022, 0));
        assert_eq!((change("u=rw").clear, change("u=rw").set), (0o700, 0o600));
        let own = 0o777 & !umask();
        assert_eq!(change("+w").set, 0o222 & own);
        assert_eq!((change("=w").clear, change("=w").set), (0o777, 0o222 & own));
        assert_eq!(change("a+X").set_if_executable, 0o111);
        assert!(parse_modes("D755,F644").is_ok());
        for text in ["", "999", "u", "z+r", "u+q", "D", "+111", "F+644", "D+1000"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!(parse_owner("root:0"), Ok(GivenOwner { uid: Some(0), gid: Some(0) }));
        assert_eq!(parse_owner(":root"), Ok(GivenOwner { uid: None, gid: Some(0) }));
        assert_eq!(parse_owner("7"), Ok(GivenOwner { uid: Some(7), gid: None }));
        assert!(parse_owner("4294967295").is_err() && parse_owner("0:4294967295").is_err());
        assert!(parse_owner("").is_err() && parse_owner("no such user").is_err());
    }
}
