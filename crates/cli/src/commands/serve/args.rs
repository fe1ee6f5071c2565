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
use thalweg_serve::server::{FollowLinks, Format};

use crate::args::MethodArgs;

/// Serve a directory or a file over HTTP
///
/// Listens at 127.0.0.1:8000, or the next free port, until it is interrupted. thalweg serves nothing outside DIR, and
/// no FIFOs or devices. If a file changes while it is sent, thalweg closes the connection before the response is
/// complete, so that the client reports an error. thalweg does not support TLS: use --unix and nginx or another proxy.
/// thalweg copies file data by default; with --zero-copy, it sends pages of the files by reference.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Directory or file to serve
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    pub root: PathBuf,
    /// Listen at this address; may be repeated
    ///
    /// ADDR is ADDRESS:PORT, :PORT for all addresses of this machine, or PORT for this machine only. Port 0 means a
    /// free port.
    #[arg(short, long, value_name = "ADDR")]
    pub listen: Vec<Listen>,
    /// Listen at this unix socket; may be repeated
    #[arg(long, value_name = "PATH")]
    pub unix: Vec<PathBuf>,
    /// Serve one client over standard input and output, without listening
    #[arg(long, conflicts_with_all = ["listen", "unix", "user", "tune", "check", "explain"])]
    pub stdio: bool,
    /// Has no effect: thalweg serve never writes
    #[arg(long)]
    pub read_only: bool,
    /// With --stdio: decode percent-encoding in the path, and expand `~` to the home directory
    #[arg(long, requires = "stdio")]
    pub encoded: bool,
    /// Compress the connection; needs --stdio, and the client must compress it too
    #[arg(long, requires = "stdio")]
    pub compress: bool,
    /// Control which symbolic links are followed
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Following::Inside)]
    pub follow: Following,
    /// Also serve names that start with a dot
    #[arg(long)]
    pub hidden: bool,
    /// Do not list directories without index.html
    #[arg(long)]
    pub no_listing: bool,
    /// Send FILE.br, FILE.zst or FILE.gz instead of FILE to clients that accept it
    #[arg(long)]
    pub precompressed: bool,
    /// Send the hash of a file to clients that request it: with the header Want-Repr-Digest, or with ?digest=HASH after
    /// the path, where HASH is sha-256, blake3 or xxh3
    #[arg(long)]
    pub hash: bool,
    /// Provide metrics for Prometheus at /-/metrics
    #[arg(long)]
    pub metrics: bool,
    /// Log every response on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Logging::Text)]
    pub log: Logging,
    /// Limit the total rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Limit the rate of each connection, in bytes per second
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub limit_each: Option<u64>,
    /// Limit the memory for all clients: buffers, pipes and directory listings
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_some_bytes)]
    pub memory: u64,
    /// Use this many worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Limit the number of connections [default: a quarter of `ulimit -Hn`]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,
    /// Limit the connections per client address; 0 means no limit [default: 3/4 of --max-connections]
    #[arg(long, value_name = "N")]
    pub connections_per_address: Option<usize>,
    /// Close a connection whose request header takes longer
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub header_timeout: Duration,
    /// Close a connection without a request for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub idle_timeout: Duration,
    /// Close a connection whose client reads nothing for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub send_timeout: Duration,
    /// After an interrupt, finish responses for this long; a second interrupt ends at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub grace: Duration,
    /// First measure for 3 seconds, and save the result in the profile of this machine
    #[arg(long)]
    pub tune: bool,
    /// Become this user after opening the sockets (root only)
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Check the options and addresses, and exit
    #[arg(long)]
    pub check: bool,
    /// Print how this file of DIR would be sent over TCP, and exit
    #[arg(long, value_name = "PATH", conflicts_with_all = ["check", "tune"])]
    pub explain: Option<PathBuf>,
    #[command(flatten)]
    pub choice: MethodArgs,
}

const EXAMPLES: &str = "\
Examples:
  thalweg serve                            this directory, to this machine only
  thalweg serve photos/ --listen :8000     to your network
  thalweg serve disk.img --listen 8080 --zero-copy --prefer cpu
  thalweg serve site/ --unix /run/site.sock --precompressed
  thalweg serve /srv --listen :80 --user www-data
  thalweg serve photos/ --explain 2024/film.mp4
  curl -C - -O http://127.0.0.1:8000/big   continue a download
  curl http://127.0.0.1:8000/photos/?json  the directory as JSON

Exit status:
  0  interrupted, and all responses were finished
  1  cannot listen, or some responses were incomplete
  2  wrong usage";

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
        address.map(Self).ok_or_else(|| "expected ADDRESS:PORT, :PORT or PORT".to_owned())
    }
}

/// The symbolic links that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Following {
    /// No links
    None,
    /// Relative links that stay inside DIR at every step
    Inside,
    /// All links
    Any,
}

impl From<Following> for FollowLinks {
    fn from(following: Following) -> Self {
        match following {
            Following::None => Self::Never,
            Following::Inside => Self::Inside,
            Following::Any => Self::Anywhere,
        }
    }
}

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Logging {
    /// Nothing
    None,
    /// One line per response
    Text,
    /// One JSON object per response
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
