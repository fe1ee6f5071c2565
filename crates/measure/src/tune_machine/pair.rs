//! The ends to measure, written `file:pipe@DIR` on the command line, in jobs and in results.

use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};
use thalweg_core::{Kind, profile::SinkState};

use crate::arms::transfer::{Medium, StreamKind};

/// A source and a sink.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EndPair {
    /// The end from which bytes are read.
    pub source: EndKind,
    pub sink: EndKind,
}

/// The kind of an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndKind {
    Memory,
    /// Uncached memory, as the sink of copies from uncached memory.
    Cold,
    /// Memory, as the sink of repeated copies of one size.
    Repeated,
    /// A repeated byte with which memory is filled.
    Fill,
    File(PathBuf),
    /// A pipe with a thread of this process at its other end.
    Pipe,
    /// A Unix stream socket with a thread of this process at its other end.
    Unix,
    /// A TCP connection over loopback with a thread of this process at its other end.
    Tcp,
    /// A TCP sink with a reader that requests 1 MiB at a time instead of the usual 64 KiB.
    TcpLarge,
    /// Memory of a process. The other end of the pair is memory of another process.
    Process(MemoryOwner),
}

/// The kind of memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryOwner {
    /// Private memory on ordinary pages.
    Plain,
    /// As a source: memory lent by the channel, in which the data is produced directly.
    Loan,
    /// As a sink: memory allocated for each buffer, on huge pages if the kernel has them.
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
            "process" => Ok(Self::Process(MemoryOwner::Plain)),
            "loan" => Ok(Self::Process(MemoryOwner::Loan)),
            "huge" => Ok(Self::Process(MemoryOwner::Huge)),
            other => Err(format!(
                "unknown endpoint '{other}'; known: memory, file, pipe, unix, tcp (or socket), \
                 process; only as source: fill, loan; only as sink: cold, repeated, huge, tcp-1m"
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
            Self::Process(MemoryOwner::Plain) => "process",
            Self::Process(MemoryOwner::Loan) => "loan",
            Self::Process(MemoryOwner::Huge) => "huge",
        }
    }

    /// Returns the planner's kind of this end.
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

    /// Returns the medium that a mechanism gets for this end.
    pub(super) fn medium(&self) -> Medium<'_> {
        match self {
            Self::Memory | Self::Cold | Self::Repeated | Self::Fill | Self::Process(_) => {
                Medium::Memory
            }
            Self::File(folder) => Medium::Within(folder),
            Self::Pipe => Medium::Stream(StreamKind::Pipe),
            Self::Unix => Medium::Stream(StreamKind::Unix),
            Self::Tcp => Medium::Stream(StreamKind::Tcp),
            Self::TcpLarge => Medium::Stream(StreamKind::TcpLarge),
        }
    }

    fn folder(&self) -> Option<&PathBuf> {
        if let Self::File(folder) = self { Some(folder) } else { None }
    }
}

impl EndPair {
    /// Returns `true` for copies from memory to memory and for fills. They compare kernels instead of mechanisms.
    pub fn are_memory(&self) -> bool {
        matches!(self.source, EndKind::Memory | EndKind::Fill)
            && matches!(self.sink, EndKind::Memory | EndKind::Cold | EndKind::Repeated)
    }

    /// Returns `true` for fills, which compare fill kernels.
    pub fn are_fill(&self) -> bool {
        self.source == EndKind::Fill
    }

    /// Returns the pairs that are measured if the user names this pair. `process:process` stands for all kinds of
    /// memory that matter between two processes. `memory:memory` stands for copies inside and outside the caches and
    /// repeated copies of one size, `fill:memory` for the same kinds of fills. `file:tcp` stands for two kinds of
    /// readers, because the fastest mechanism may depend on the reader.
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
        let plain = || EndKind::Process(MemoryOwner::Plain);
        if (&self.source, &self.sink) != (&plain(), &plain()) {
            return vec![self];
        }
        let sources = [MemoryOwner::Plain, MemoryOwner::Loan].map(EndKind::Process);
        let with_sinks = |source: EndKind| {
            let sinks = [MemoryOwner::Plain, MemoryOwner::Huge].map(EndKind::Process);
            sinks.map(|sink| Self { source: source.clone(), sink })
        };
        sources.into_iter().flat_map(with_sinks).collect()
    }

    /// Returns a description of the sink's state to append to the name of the pair; empty for the usual state.
    pub fn sink_words(&self, state: SinkState) -> &'static str {
        match (&self.sink, state) {
            (EndKind::Process(MemoryOwner::Huge), _) => ", into new memory on huge pages",
            (EndKind::Cold, _) => ", from and to memory that no cache holds",
            (EndKind::Repeated, _) => ", one size again and again",
            (EndKind::TcpLarge, _) => ", read 1 MiB at a time",
            (EndKind::Process(_), SinkState::Fresh) => ", into new memory",
            (EndKind::Process(_), SinkState::Resident) => ", into memory used before",
            (_, SinkState::Resident) => ", over an existing file",
            (_, SinkState::Fresh) => "",
        }
    }

    /// Returns an error if these two ends cannot be combined.
    fn check(&self) -> Result<(), &'static str> {
        let is_process = |end: &EndKind| matches!(end, EndKind::Process(_));
        match (&self.source, &self.sink) {
            (EndKind::Cold, _) => Err("'cold' can only be the sink, as in memory:cold"),
            (source, EndKind::Cold) if *source != EndKind::Memory => {
                Err("only copies of memory can be cold: memory:cold")
            }
            (EndKind::Repeated, _) => {
                Err("'repeated' can only be the sink, as in memory:repeated, fill:repeated")
            }
            (source, EndKind::Repeated) if !matches!(source, EndKind::Memory | EndKind::Fill) => {
                Err("only copies and fills can be repeated: memory:repeated, fill:repeated")
            }
            (EndKind::TcpLarge, _) => Err("'tcp-1m' can only be the sink, as in file:tcp-1m"),
            (EndKind::Process(MemoryOwner::Huge), _) => {
                Err("'huge' can only be the sink, as in loan:huge, process:huge")
            }
            (_, EndKind::Process(MemoryOwner::Loan)) => {
                Err("'loan' can only be the source, as in loan:process, loan:huge")
            }
            (a, b) if is_process(a) != is_process(b) => {
                Err("'process', 'loan' and 'huge' work only between processes: process:process, \
                     loan:process, process:huge")
            }
            _ => Ok(()),
        }
    }

    /// Returns the directories of the files.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.source, &self.sink].into_iter().filter_map(EndKind::folder)
    }
}

impl FromStr for EndPair {
    type Err = String;

    /// Parses `file:file@DIR`, `file:file@FROM,TO`, `file:tcp@DIR`, `pipe:file@DIR`, `memory:memory` or
    /// `process:process`. A file without a directory is in the current directory.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kinds, folders) = match text.split_once('@') {
            Some((kinds, folders)) => (kinds, Some(folders)),
            None => (text, None),
        };
        let Some((source, sink)) = kinds.split_once(':') else {
            return Err(format!(
                "'{text}' is not a pair of endpoints (examples: file:file@DIR, file:tcp, memory:memory)"
            ));
        };
        let two = source == "file" && sink == "file";
        let mut names = match folders {
            Some("") => return Err(format!("'{text}': the directory after the @ is missing")),
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
            return Err(format!("'{text}': only memory can be filled (fill:memory)"));
        }
        if files == 0 && folders.is_some() {
            return Err(format!("'{text}': only an endpoint `file` can have a directory"));
        }
        let ends = Self { source, sink };
        ends.check().map_err(|why| format!("'{text}': {why}"))?;
        Ok(ends)
    }
}

impl fmt::Display for EndPair {
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

impl TryFrom<String> for EndPair {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<EndPair> for String {
    fn from(ends: EndPair) -> Self {
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
            assert_eq!(text.parse::<EndPair>().unwrap().to_string(), text);
        }
        assert_eq!("file:socket".parse::<EndPair>().unwrap().to_string(), "file:tcp@.");
        let ends = |text: &str| text.parse::<EndPair>().unwrap();
        assert!(ends("memory:memory").are_memory() && !ends("memory:memory").are_fill());
        assert!(ends("fill:memory").are_memory() && ends("fill:memory").are_fill());
    }

    #[test]
    fn two_processes_are_all_the_memory_that_they_may_have() {
        let named: EndPair = "process:process".parse().unwrap();
        assert!(!named.are_memory());
        let all: Vec<String> = named.each().iter().map(EndPair::to_string).collect();
        assert_eq!(all, ["process:process", "process:huge", "loan:process", "loan:huge"]);
        for text in &all[1..] {
            let ends: EndPair = text.parse().unwrap();
            assert_eq!(ends.to_string(), *text);
            assert_eq!(ends.clone().each(), [ends]);
        }
    }

    #[test]
    fn copies_are_measured_in_the_caches_and_beyond_them_and_again_and_again() {
        let each = |text: &str| {
            let named: EndPair = text.parse().unwrap();
            named.each().iter().map(EndPair::to_string).collect::<Vec<_>>()
        };
        assert_eq!(each("memory:memory"), ["memory:memory", "memory:cold", "memory:repeated"]);
        assert_eq!(each("fill:memory"), ["fill:memory", "fill:repeated"]);
        assert_eq!(each("fill:repeated"), ["fill:repeated"]);
    }

    #[test]
    fn a_file_into_a_connection_is_measured_with_two_readers() {
        let named: EndPair = "file:tcp@/srv".parse().unwrap();
        let all: Vec<String> = named.each().iter().map(EndPair::to_string).collect();
        assert_eq!(all, ["file:tcp@/srv", "file:tcp-1m@/srv"]);
        let large: EndPair = "file:tcp-1m@/srv".parse().unwrap();
        assert_eq!(large.clone().each(), [large]);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let reason = |text: &str| text.parse::<EndPair>().unwrap_err();
        assert!(reason("file").contains("file:file@DIR"));
        assert!(reason("file:teleport").contains("unknown endpoint 'teleport'"));
        assert!(reason("pipe:tcp@/tmp").contains("can have a directory"));
        assert!(reason("file:pipe@").contains("directory after the @"));
        assert!(reason("fill:pipe").contains("only memory"));
        assert!(reason("memory:fill").contains("only memory"));
        assert!(reason("").contains("not a pair"));
        assert!(reason("process:pipe").contains("only between processes"));
        assert!(reason("memory:huge").contains("only between processes"));
        assert!(reason("huge:process").contains("'huge' can only be the sink"));
        assert!(reason("cold:memory").contains("'cold' can only be the sink"));
        assert!(reason("pipe:cold").contains("only copies of memory"));
        assert!(reason("pipe:repeated").contains("can be repeated"));
        assert!(reason("repeated:memory").contains("'repeated' can only be the sink"));
        assert!(reason("tcp-1m:file").contains("'tcp-1m' can only be the sink"));
        assert!(reason("process:loan").contains("'loan' can only be the source"));
    }
}
