//! Which ends are measured: `file:pipe@DIR` on the command line, in jobs and in results.

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};
use thalweg_core::{Kind, profile::SinkState};

use crate::arms::transfer::{Medium, Stream};

/// A source and a sink.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ends {
    /// Where bytes come from.
    pub source: EndKind,
    pub sink: EndKind,
}

/// What an end is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    Memory,
    /// Memory that no cache holds, as a sink of copies from the like.
    Cold,
    /// Memory, as a sink of one size again and again.
    Repeated,
    /// A byte, again and again: what memory is filled with.
    Fill,
    File(PathBuf),
    /// A pipe; a thread of ours is at its other end.
    Pipe,
    /// A unix stream socket, likewise.
    Unix,
    /// A TCP connection over loopback, likewise.
    Tcp,
    /// As a sink: what reads at its other end asks for 1 MiB at a time, where the usual is 64 KiB.
    TcpLarge,
    /// Memory of a process of its own; another one's is at the other end.
    Process(Held),
}

/// What memory of a process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Held {
    /// Its own, on ordinary pages.
    Plain,
    /// As a source: lent by the channel, with the data born in it.
    Loan,
    /// As a sink: made for each buffer, on huge pages where the kernel has them.
    Huge,
}

impl EndKind {
    fn named(word: &str, folder: &mut dyn FnMut() -> PathBuf) -> Result<Self, String> {
        match word {
            "memory" => Ok(Self::Memory),
            "cold" => Ok(Self::Cold),
            "repeated" => Ok(Self::Repeated),
            "fill" => Ok(Self::Fill),
            "file" => Ok(Self::File(folder())),
            "pipe" => Ok(Self::Pipe),
            "unix" => Ok(Self::Unix),
            "tcp" | "socket" => Ok(Self::Tcp),
            "tcp-1m" => Ok(Self::TcpLarge),
            "process" => Ok(Self::Process(Held::Plain)),
            "loan" => Ok(Self::Process(Held::Loan)),
            "huge" => Ok(Self::Process(Held::Huge)),
            other => Err(format!(
                "'{other}' is no kind of end; there are memory, file, pipe, unix, tcp (or socket), \
                 process, fill as a source for memory, cold and repeated as sinks for it, and tcp-1m as a sink"
            )),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cold => "cold",
            Self::Repeated => "repeated",
            Self::Fill => "fill",
            Self::File(_) => "file",
            Self::Pipe => "pipe",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::TcpLarge => "tcp-1m",
            Self::Process(Held::Plain) => "process",
            Self::Process(Held::Loan) => "loan",
            Self::Process(Held::Huge) => "huge",
        }
    }

    /// The planner's word for it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Memory | Self::Cold | Self::Repeated | Self::Fill | Self::Process(_) => {
                Kind::Memory
            }
            Self::File(_) => Kind::File,
            Self::Pipe => Kind::Pipe,
            Self::Unix | Self::Tcp | Self::TcpLarge => Kind::Socket,
        }
    }

    /// What a mechanism is given there.
    pub(super) fn medium(&self) -> Medium<'_> {
        match self {
            Self::Memory | Self::Cold | Self::Repeated | Self::Fill | Self::Process(_) => {
                Medium::Memory
            }
            Self::File(folder) => Medium::Within(folder),
            Self::Pipe => Medium::Stream(Stream::Pipe),
            Self::Unix => Medium::Stream(Stream::Unix),
            Self::Tcp => Medium::Stream(Stream::Tcp),
            Self::TcpLarge => Medium::Stream(Stream::TcpLarge),
        }
    }

    fn folder(&self) -> Option<&PathBuf> {
        if let Self::File(folder) = self { Some(folder) } else { None }
    }
}

impl Ends {
    /// Memory to memory, or a byte to memory: kernels are compared there, not mechanisms.
    pub fn are_memory(&self) -> bool {
        matches!(self.source, EndKind::Memory | EndKind::Fill)
            && matches!(self.sink, EndKind::Memory | EndKind::Cold | EndKind::Repeated)
    }

    /// A byte to memory: the kernels are those that fill.
    pub fn are_fill(&self) -> bool {
        self.source == EndKind::Fill
    }

    /// What is measured when a person names this pair: `process:process` stands for every memory
    /// that decides between two processes, `memory:memory` for copies in the caches and beyond them and of one
    /// size again and again, `fill:memory` for fills likewise, and
    /// `file:tcp` for two readers, for which mechanism is fastest may go by what reads.
    pub fn each(self) -> Vec<Self> {
        if let (EndKind::File(_), EndKind::Tcp) = (&self.source, &self.sink) {
            let large = Self { source: self.source.clone(), sink: EndKind::TcpLarge };
            return vec![self, large];
        }
        let beside: &[EndKind] = match (&self.source, &self.sink) {
            (EndKind::Memory, EndKind::Memory) => &[EndKind::Cold, EndKind::Repeated],
            (EndKind::Fill, EndKind::Memory) => &[EndKind::Repeated],
            _ => &[],
        };
        if !beside.is_empty() {
            let with = |sink: &EndKind| Self { source: self.source.clone(), sink: sink.clone() };
            return std::iter::once(self.clone()).chain(beside.iter().map(with)).collect();
        }
        let plain = || EndKind::Process(Held::Plain);
        if (&self.source, &self.sink) != (&plain(), &plain()) {
            return vec![self];
        }
        let sources = [Held::Plain, Held::Loan].map(EndKind::Process);
        let with_sinks = |source: EndKind| {
            let sinks = [Held::Plain, Held::Huge].map(EndKind::Process);
            sinks.map(|sink| Self { source: source.clone(), sink })
        };
        sources.into_iter().flat_map(with_sinks).collect()
    }

    /// What the sink is like before, to go on after the pair's name; empty where it goes without
    /// saying.
    pub fn sink_words(&self, state: SinkState) -> &'static str {
        match (&self.sink, state) {
            (EndKind::Process(Held::Huge), _) => ", into new memory on huge pages",
            (EndKind::Cold, _) => ", from and to memory that no cache holds",
            (EndKind::Repeated, _) => ", one size again and again",
            (EndKind::TcpLarge, _) => ", read by 1 MiB at a time",
            (EndKind::Process(_), SinkState::Fresh) => ", into new memory",
            (EndKind::Process(_), SinkState::Resident) => ", into memory used before",
            (_, SinkState::Resident) => ", over a file that is there",
            (_, SinkState::Fresh) => "",
        }
    }

    /// Why two such ends do not go together.
    fn check(&self) -> Result<(), &'static str> {
        let is_process = |end: &EndKind| matches!(end, EndKind::Process(_));
        match (&self.source, &self.sink) {
            (EndKind::Cold, _) => Err("'cold' is a sink: memory:cold"),
            (source, EndKind::Cold) if *source != EndKind::Memory => {
                Err("copies of memory alone are cold: memory:cold")
            }
            (EndKind::Repeated, _) => Err("'repeated' is a sink: memory:repeated, fill:repeated"),
            (source, EndKind::Repeated) if !matches!(source, EndKind::Memory | EndKind::Fill) => {
                Err("copies of memory and fills alone are repeated: memory:repeated, fill:repeated")
            }
            (EndKind::TcpLarge, _) => Err("'tcp-1m' is a sink: file:tcp-1m"),
            (EndKind::Process(Held::Huge), _) => Err("'huge' is a sink: loan:huge, process:huge"),
            (_, EndKind::Process(Held::Loan)) => Err("'loan' is a source: loan:process, loan:huge"),
            (a, b) if is_process(a) != is_process(b) => {
                Err("a process is at both ends or at none: process:process")
            }
            _ => Ok(()),
        }
    }

    /// The folders of its files.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.source, &self.sink].into_iter().filter_map(EndKind::folder)
    }
}

impl FromStr for Ends {
    type Err = String;

    /// `file:file@DIR`, `file:file@FROM,TO`, `file:tcp@DIR`, `pipe:file@DIR`, `memory:memory`,
    /// `process:process`; a file without a folder lies in the current one.
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
        let is_filled = matches!(sink, EndKind::Memory | EndKind::Repeated);
        if sink == EndKind::Fill || (source == EndKind::Fill && !is_filled) {
            return Err(format!("'{text}': only memory is filled (fill:memory)"));
        }
        if files == 0 && folders.is_some() {
            return Err(format!("'{text}': a folder, and no file to lie in it"));
        }
        let ends = Self { source, sink };
        ends.check().map_err(|why| format!("'{text}': {why}"))?;
        Ok(ends)
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
        for text in [
            "file:file@/a",
            "file:file@/a,/b",
            "file:tcp@/a b",
            "pipe:file@x",
            "memory:pipe",
            "fill:memory",
            "memory:cold",
            "memory:repeated",
            "fill:repeated",
        ] {
            assert_eq!(text.parse::<Ends>().unwrap().to_string(), text);
        }
        assert_eq!("file:socket".parse::<Ends>().unwrap().to_string(), "file:tcp@.");
        let ends = |text: &str| text.parse::<Ends>().unwrap();
        assert!(ends("memory:memory").are_memory() && !ends("memory:memory").are_fill());
        assert!(ends("fill:memory").are_memory() && ends("fill:memory").are_fill());
    }

    #[test]
    fn two_processes_are_all_the_memory_that_they_may_have() {
        let named: Ends = "process:process".parse().unwrap();
        assert!(!named.are_memory());
        let all: Vec<String> = named.each().iter().map(Ends::to_string).collect();
        assert_eq!(all, ["process:process", "process:huge", "loan:process", "loan:huge"]);
        for text in &all[1..] {
            let ends: Ends = text.parse().unwrap();
            assert_eq!(ends.to_string(), *text);
            assert_eq!(ends.clone().each(), [ends]);
        }
    }

    #[test]
    fn copies_are_measured_in_the_caches_and_beyond_them_and_again_and_again() {
        let each = |text: &str| {
            let named: Ends = text.parse().unwrap();
            named.each().iter().map(Ends::to_string).collect::<Vec<_>>()
        };
        assert_eq!(each("memory:memory"), ["memory:memory", "memory:cold", "memory:repeated"]);
        assert_eq!(each("fill:memory"), ["fill:memory", "fill:repeated"]);
        assert_eq!(each("fill:repeated"), ["fill:repeated"]);
    }

    #[test]
    fn a_file_into_a_connection_is_measured_with_two_readers() {
        let named: Ends = "file:tcp@/srv".parse().unwrap();
        let all: Vec<String> = named.each().iter().map(Ends::to_string).collect();
        assert_eq!(all, ["file:tcp@/srv", "file:tcp-1m@/srv"]);
        let large: Ends = "file:tcp-1m@/srv".parse().unwrap();
        assert_eq!(large.clone().each(), [large]);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let reason = |text: &str| text.parse::<Ends>().unwrap_err();
        assert!(reason("file").contains("file:file@DIR"));
        assert!(reason("file:teleport").contains("'teleport' is no kind of end"));
        assert!(reason("pipe:tcp@/tmp").contains("no file to lie in it"));
        assert!(reason("file:pipe@").contains("no folder after the @"));
        assert!(reason("fill:pipe").contains("only memory"));
        assert!(reason("memory:fill").contains("only memory"));
        assert!(reason("").contains("no pair"));
        assert!(reason("process:pipe").contains("at both ends"));
        assert!(reason("memory:huge").contains("at both ends"));
        assert!(reason("huge:process").contains("'huge' is a sink"));
        assert!(reason("cold:memory").contains("'cold' is a sink"));
        assert!(reason("pipe:cold").contains("memory alone"));
        assert!(reason("pipe:repeated").contains("alone are repeated"));
        assert!(reason("repeated:memory").contains("'repeated' is a sink"));
        assert!(reason("tcp-1m:file").contains("'tcp-1m' is a sink"));
        assert!(reason("process:loan").contains("'loan' is a source"));
    }
}
