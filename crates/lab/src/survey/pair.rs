//! Which ends are measured: `file:pipe@DIR` on the command line, in jobs and in results.

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};
use thalweg_core::Kind;

/// A source and a sink.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ends {
    /// Where bytes come from.
    pub source: EndKind,
    /// Where they go.
    pub sink: EndKind,
}

/// What an end is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    /// Memory of the process.
    Memory,
    /// Files in this folder.
    File(PathBuf),
    /// A pipe; a thread of ours is at its other end.
    Pipe,
    /// A unix stream socket, likewise.
    Unix,
    /// A TCP connection over loopback, likewise.
    Tcp,
}

impl EndKind {
    fn named(word: &str, folder: &mut dyn FnMut() -> PathBuf) -> Result<Self, String> {
        match word {
            "memory" => Ok(Self::Memory),
            "file" => Ok(Self::File(folder())),
            "pipe" => Ok(Self::Pipe),
            "unix" => Ok(Self::Unix),
            "tcp" | "socket" => Ok(Self::Tcp),
            other => Err(format!(
                "'{other}' is no kind of end; there are memory, file, pipe, unix, tcp (or socket)"
            )),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File(_) => "file",
            Self::Pipe => "pipe",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }

    /// The planner's word for it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory => Kind::Memory,
            Self::File(_) => Kind::File,
            Self::Pipe => Kind::Pipe,
            Self::Unix | Self::Tcp => Kind::Socket,
        }
    }

    fn folder(&self) -> Option<&PathBuf> {
        if let Self::File(folder) = self { Some(folder) } else { None }
    }
}

impl Ends {
    /// Memory to memory: copy kernels are compared there, not mechanisms.
    pub fn are_memory(&self) -> bool {
        self.source == EndKind::Memory && self.sink == EndKind::Memory
    }

    /// The folders of its files.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.source, &self.sink].into_iter().filter_map(EndKind::folder)
    }
}

impl FromStr for Ends {
    type Err = String;

    /// `file:file@DIR`, `file:file@FROM,TO`, `file:tcp@DIR`, `pipe:file@DIR`, `memory:memory`; a
    /// file without a folder lies in the current one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kinds, folders) = match text.split_once('@') {
            Some((kinds, folders)) => (kinds, Some(folders)),
            None => (text, None),
        };
        let Some((source, sink)) = kinds.split_once(':') else {
            return Err(format!(
                "'{text}' is no pair of ends (examples: file:file@DIR, file:tcp, memory:memory)"
            ));
        };
        let two = source == "file" && sink == "file";
        let mut names = match folders {
            Some("") => return Err(format!("'{text}': there is no folder after the @")),
            Some(folders) if two && !PathBuf::from(folders).is_dir() => {
                folders.rsplit_once(',').map_or(vec![folders], |(from, to)| vec![from, to])
            }
            Some(folder) => vec![folder],
            None => vec!["."],
        }
        .into_iter();
        let first = names.next().unwrap_or(".");
        let second = names.next().unwrap_or(first);
        let mut files = 0;
        let mut folder = |name: &str| {
            files += 1;
            PathBuf::from(name)
        };
        let source = EndKind::named(source, &mut || folder(first))?;
        let sink = EndKind::named(sink, &mut || folder(second))?;
        if files == 0 && folders.is_some() {
            return Err(format!("'{text}': a folder, and no file to lie in it"));
        }
        Ok(Self { source, sink })
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source.word(), self.sink.word())?;
        match (self.source.folder(), self.sink.folder()) {
            (Some(from), Some(to)) if from != to => {
                write!(f, "@{},{}", from.display(), to.display())
            }
            (Some(folder), _) | (None, Some(folder)) => write!(f, "@{}", folder.display()),
            (None, None) => Ok(()),
        }
    }
}

impl TryFrom<String> for Ends {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Ends> for String {
    fn from(ends: Ends) -> Self {
        ends.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_they_are_written() {
        for text in
            ["file:file@/a", "file:file@/a,/b", "file:tcp@/a b", "pipe:file@x", "memory:pipe"]
        {
            assert_eq!(text.parse::<Ends>().unwrap().to_string(), text);
        }
        assert_eq!("file:socket".parse::<Ends>().unwrap().to_string(), "file:tcp@.");
        assert!("memory:memory".parse::<Ends>().unwrap().are_memory());
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let reason = |text: &str| text.parse::<Ends>().unwrap_err();
        assert!(reason("file").contains("file:file@DIR"));
        assert!(reason("file:teleport").contains("'teleport' is no kind of end"));
        assert!(reason("pipe:tcp@/tmp").contains("no file to lie in it"));
        assert!(reason("file:pipe@").contains("no folder after the @"));
        assert!(reason("").contains("no pair"));
    }
}
