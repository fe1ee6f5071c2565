//! Arguments of `thalweg fetch`.

use clap::Args;
use std::{path::PathBuf, time::Duration};
use thalweg_core::quantity::{parse_duration, parse_rate, parse_some_bytes};
use thalweg_serve::client::Connections;

use crate::args::{Choice, FsyncArgs, ProgressArgs, flag};

/// Fetches files of web servers, whole or not at all
///
/// A file gets its name only when all of it is there. Until then it is a part beside that name, with a
/// journal of what is there: whatever stops the command, the same command goes on and moves only what is
/// missing, if the server says by what the file is known again. A file that changes on the server
/// meanwhile is fetched anew, never put together.
///
/// With -r the URL is a folder that `thalweg serve` shares, and DST becomes it: only files that differ in
/// size or time of modification are moved, nothing is removed, and a folder that is not there yet appears
/// when all is in it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FetchArgs {
    /// What to fetch, and where to put it: a file, a folder that is there, or `-` for standard output;
    /// without that, into the current folder under the last name of the URL
    #[arg(value_name = "URL... [DST]", required = true)]
    pub words: Vec<String>,
    /// Replace files that have the name of a URL's last part
    #[arg(short, long)]
    pub force: bool,
    /// Fetch the whole folder at the URL, from `thalweg serve`, with modes and times
    #[arg(short, long)]
    pub recursive: bool,
    /// As -r, and keep owners and set-id bits where that is permitted
    #[arg(short, long)]
    pub archive: bool,
    /// With -r: how many connections
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// With -r: files of the same size are compared by their hashes and not by their times; the server needs --hash too
    #[arg(long)]
    pub hash: bool,
    /// With -r: refuse a list of files that is longer than this; it waits on the disk, not in memory
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_some_bytes)]
    pub max_list: u64,
    /// How many connections bring one file: `auto` begins with one and adds one while that makes it faster
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = connections)]
    #[arg(env = "THALWEG_CONNECTIONS", hide_env = true)]
    pub connections: Connections,
    /// A list of digests, as sha256sum, b3sum and xxhsum write and read it; each file must have its own
    #[arg(long, value_name = "FILE|URL")]
    pub sums: Option<String>,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
    /// The BLAKE3 that the file must have
    #[arg(long, value_name = "HEX")]
    pub blake3: Option<String>,
    /// Read the file back from the device and compare it with these, or with what the server says
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub durable: FsyncArgs,
    /// Trust the authorities of this file (PEM) instead of those of the system, for https
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Do not look for user and password in ~/.netrc
    #[arg(long)]
    pub no_netrc: bool,
    /// Send this header too, `NAME: VALUE`; may be given several times
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// Retry this often when nothing came since the last try, also before the server has answered once
    /// [default: 5, and 0 before its first answer if no connection can be made]
    #[arg(long, value_name = "N", env = "THALWEG_RETRIES", hide_env = true)]
    pub retries: Option<u32>,
    /// Replace a connection on which nothing comes for so long
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        env = "THALWEG_STALL",
        hide_env = true
    )]
    #[arg(value_parser = parse_duration)]
    pub stall: Duration,
    /// Move no more than this many bytes a second, over all connections together
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Move no more than this many bytes a second over one connection
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub limit_each: Option<u64>,
    /// Say at the end also what moved the bytes, and the processor time
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub choice: Choice,
    #[command(flatten)]
    pub shown: ProgressArgs,
}

fn connections(text: &str) -> Result<Connections, String> {
    match text {
        "auto" => Ok(Connections::Auto),
        number => match number.parse() {
            Ok(number @ 1..=64) => Ok(Connections::Exactly(number)),
            _ => Err("a number from 1 to 64, or auto".to_owned()),
        },
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg fetch http://host/big.iso                  as big.iso; the same again goes on after a kill
  thalweg fetch http://host/big.iso /srv/images/
  thalweg fetch --sha256 e3b0...b855 http://host/big.iso
  thalweg fetch --sums http://host/SHA256SUMS http://host/big.iso
  thalweg fetch http://host/a.tar.gz - | tar xz
  thalweg fetch --header 'Authorization: Bearer TOKEN' http://host/big.iso
  thalweg fetch --json http://host/big.iso | jq .mechanism
  thalweg fetch -r http://host:8000/photos/ photos   from `thalweg serve`; again: only what differs

Proxies: http_proxy, https_proxy, all_proxy and no_proxy, as with curl.

Exit status: 0 done; 1 failed, or a digest differs; 2 usage; 3 incomplete, and the same command goes on;
4 not to be had here, such as an unknown scheme.";

impl FetchArgs {
    /// Returns `true` if the URL names a directory.
    pub fn is_of_trees(&self) -> bool {
        self.recursive || self.archive
    }

    /// Splits the arguments into URLs and destination.
    pub fn split(&self) -> (&[String], Option<PathBuf>) {
        match self.words.split_last() {
            Some((last, urls)) if !urls.is_empty() && !last.contains("://") => {
                (urls, Some(PathBuf::from(last)))
            }
            _ => (&self.words, None),
        }
    }
}
