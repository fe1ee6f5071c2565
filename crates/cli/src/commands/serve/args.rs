//! Arguments of `thalweg serve`.

use clap::{Args, ValueEnum};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use thalweg_core::quantity::{parse_duration, parse_rate, parse_some_bytes};
use thalweg_serve::server::{Follow, Format};

use crate::args::Choice;

/// Serves a folder or a file over HTTP
///
/// Listens at 127.0.0.1:8000, or the next port that is free, until it is interrupted. Nothing outside DIR
/// is ever served, no FIFO or device is opened, and an answer whose file changes while it is sent is
/// never finished: the client sees it cut short. There is no TLS: put nginx or another proxy in front,
/// with --unix. By default bodies are copied; --zero-copy lets pages of the files go out by reference.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// The folder, or the file
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    pub root: PathBuf,
    /// Where to listen: ADDRESS:PORT, :PORT for every address of this machine, or PORT for this machine
    /// alone; port 0 is one that is free. May be given several times
    #[arg(short, long, value_name = "ADDR")]
    pub listen: Vec<Listen>,
    /// Listen at a unix socket of this name too, or alone; may be given several times
    #[arg(long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,
    /// Which symbolic links lead somewhere
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Following::Inside)]
    pub follow: Following,
    /// Serve names that begin with a dot too
    #[arg(long)]
    pub hidden: bool,
    /// Show no folder that has no index.html
    #[arg(long)]
    pub no_listing: bool,
    /// Send FILE.br, FILE.zst or FILE.gz for FILE to clients that take it
    #[arg(long)]
    pub precompressed: bool,
    /// Answer with the hash of a file where a client wants it: Repr-Digest, and ?digest=sha-256, blake3 or xxh3
    #[arg(long)]
    pub hash: bool,
    /// Show counts at /-/metrics, as Prometheus reads them
    #[arg(long)]
    pub metrics: bool,
    /// What to tell of every answer, on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Logging::Text)]
    pub log: Logging,
    /// Send no more than this many bytes a second, to all clients together
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Send no more than this many bytes a second on one connection
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub limit_each: Option<u64>,
    /// The most memory that clients may cost, all together: buffers and pipes for slow clients, and names of directories
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_some_bytes)]
    pub memory: u64,
    /// How many workers [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// The most connections at a time [default: as many as there are descriptors for]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,
    /// The most connections of one client address at a time; 0 for no limit [default: three quarters of
    /// --max-connections]
    #[arg(long, value_name = "N")]
    pub connections_per_address: Option<usize>,
    /// How long a client may take to send the head of a request, from its first byte to its last
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub header_timeout: Duration,
    /// Close a connection that has no request for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub idle_timeout: Duration,
    /// Close the connection if the client reads nothing for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub send_timeout: Duration,
    /// How long to finish what is under way when interrupted; a second interrupt ends it at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Measure for 3 seconds, from DIR over loopback, and keep it in the profile of this machine, before serving
    #[arg(long)]
    pub tune: bool,
    /// Become this user once the addresses are listened at; only root can
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Try the options and the addresses, and end
    #[arg(long)]
    pub check: bool,
    /// Say how a file of DIR, named as in its address, would be sent over TCP, and end
    #[arg(long, value_name = "PATH", conflicts_with_all = ["check", "tune"])]
    pub explain: Option<PathBuf>,
    #[command(flatten)]
    pub choice: Choice,
}

const EXAMPLES: &str = "\
Examples:
  thalweg serve                               this folder, for this machine
  thalweg serve photos/ --listen :8000        for everybody who reaches this machine
  thalweg serve disk.img --listen 8080 --zero-copy --prefer cpu
  thalweg serve site/ --unix /run/site.sock --precompressed
  thalweg serve /srv --listen :80 --user www-data
  thalweg serve photos/ --explain 2024/film.mp4
  curl -C - -O http://127.0.0.1:8000/big      goes on where an earlier curl ended
  curl http://127.0.0.1:8000/photos/?json     the folder for programs; ?manifest: the whole tree

Exit status: 0 ended as it was told, all answers finished; 1 it cannot listen, or answers were cut
short at the end; 2 usage.";

/// An internet address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = |ip: IpAddr, port: &str| port.parse().ok().map(|port| SocketAddr::new(ip, port));
        let address = match text.strip_prefix(':') {
            Some(port) => at(Ipv6Addr::UNSPECIFIED.into(), port),
            None => text.parse().ok().or_else(|| at(Ipv4Addr::LOCALHOST.into(), text)),
        };
        address.map(Self).ok_or_else(|| "neither ADDRESS:PORT, :PORT nor PORT".to_owned())
    }
}

/// Which symbolic links lead somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Following {
    /// None
    None,
    /// Those that stay inside DIR on every step; not those that name a path from /
    Inside,
    /// All
    Any,
}

impl From<Following> for Follow {
    fn from(following: Following) -> Self {
        match following {
            Following::None => Self::None,
            Following::Inside => Self::Inside,
            Following::Any => Self::Any,
        }
    }
}

/// What is told of every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Logging {
    /// Nothing
    None,
    /// A line
    Text,
    /// A JSON object on a line
    Json,
}

impl Logging {
    /// Converts to the server's type.
    pub fn format(self) -> Option<Format> {
        match self {
            Self::None => None,
            Self::Text => Some(Format::Text),
            Self::Json => Some(Format::Json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        let address = |text: &str| text.parse::<Listen>().map(|Listen(at)| at.to_string());
        assert_eq!(address("8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(address(":0").as_deref(), Ok("[::]:0"));
        assert_eq!(address("10.0.0.1:80").as_deref(), Ok("10.0.0.1:80"));
        assert_eq!(address("[::1]:80").as_deref(), Ok("[::1]:80"));
        for wrong in ["", ":", "host", "10.0.0.1", "1:2:3", "70000"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
