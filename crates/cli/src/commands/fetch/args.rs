//! Arguments of `thalweg fetch`.

use clap::{Args, Command, FromArgMatches};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_core::{
    failed::quoted,
    quantity::{parse_duration, parse_rate, parse_some_bytes},
};
use thalweg_serve::{
    client::{Connections, FetchError, FetchUrl},
    manifest::ListRequest,
};

use crate::{
    args::{FsyncArgs, GivenArgs, MethodArgs, ProgressArgs, SelectionArgs, flag},
    commands::serve::stdio::decoded,
    exit::CommandFailure,
    output::change_log::ChangeLog,
};

/// Heading of the options with which `copy` and `sync` start this command for a copy from another machine.
const STDIO: &str = "Between machines, with --stdio (used by copy and sync)";

/// Fetch files from web servers
///
/// A file appears under its name only when it is complete. Until then, its directory contains a partial file and a
/// journal. After an interruption, the same command continues if the server sends a strong validator, such as an ETag.
/// If the file changes on the server, it is fetched again from the start.
///
/// With -r, the URL is a directory of `thalweg serve`, and DST becomes a copy of it. thalweg fetches only files whose
/// size or modification time differs, and removes nothing. A new directory appears when it is complete.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FetchArgs {
    /// URLs, then the destination: a file, an existing directory, or `-` for standard output
    ///
    /// Without a destination, the last part of the URL names a file in the current directory.
    #[arg(value_name = "URL... [DST]", required = true)]
    pub words: Vec<OsString>,
    /// Replace files that exist in the directory DST, instead of failing
    #[arg(short, long)]
    pub force: bool,
    /// Fetch a directory of `thalweg serve`, with modes and times
    #[arg(short, long)]
    pub recursive: bool,
    /// Like -r, and also keep owners and set-id bits if permitted
    #[arg(short, long)]
    pub archive: bool,
    /// With -r: use this many connections [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_JOBS", hide_env = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Fetch from the server at standard input and output; the only argument is the destination
    #[arg(long, help_heading = STDIO)]
    pub stdio: bool,
    /// Decode percent-encoding in paths and patterns, and expand `~` to the home directory
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub encoded: bool,
    /// Compress the connection; the server must compress it too
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub compress: bool,
    /// Request further connections, and accept those with this key
    #[arg(long, value_name = "KEY", requires = "stdio", help_heading = STDIO)]
    pub accept: Option<String>,
    /// Pass this connection to the fetch that accepts it; the only argument is the key
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub join: bool,
    /// Name of the source, for messages and to continue an interrupted fetch
    #[arg(long, value_name = "NAME", requires = "stdio", help_heading = STDIO)]
    pub from: Option<String>,
    /// Give the copy this name if DST is a directory; with --sync only if --into-existing is set
    #[arg(long, value_name = "NAME", requires = "stdio", help_heading = STDIO)]
    pub into: Option<OsString>,
    /// Fail unless DST is a directory; with --sync, also fetch into DST/NAME of --into
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub into_existing: bool,
    /// Make DST equal to the source, and count the changes
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub sync: bool,
    /// Delete entries of DST that the source does not have; --force overrides refusals (with --sync)
    #[arg(long, requires = "sync", help_heading = STDIO)]
    pub delete: bool,
    /// Delete nothing if more than N entries would be deleted (with --delete)
    #[arg(long, value_name = "N", requires = "delete", help_heading = STDIO)]
    pub max_delete: Option<u64>,
    /// Also delete excluded entries of DST (with --delete)
    #[arg(long, requires = "delete", help_heading = STDIO)]
    pub delete_excluded: bool,
    /// Fetch renamed files instead of linking them (with --delete)
    #[arg(long, requires = "delete", help_heading = STDIO)]
    pub no_detect_renames: bool,
    /// Print each change (with --sync)
    #[arg(long, requires = "sync", help_heading = STDIO)]
    pub itemize: bool,
    /// Mark the summary, so that the other machine logs it (with --itemize)
    #[arg(long, requires = "itemize", help_heading = STDIO)]
    pub mark_summary: bool,
    /// Change nothing, and report what would change (with --sync)
    #[arg(long, requires = "sync", help_heading = STDIO)]
    pub dry_run: bool,
    /// Make hard links to equal files of this earlier copy of the source, instead of fetching them (with --sync)
    #[arg(long, value_name = "DIR", requires = "sync", help_heading = STDIO)]
    #[arg(conflicts_with_all = ["hash", "verify"])]
    pub reference: Option<PathBuf>,
    /// Move deleted and replaced entries of DST to this directory (with --sync)
    #[arg(long, value_name = "DIR", requires = "sync", help_heading = STDIO)]
    pub trash: Option<PathBuf>,
    /// Fetch the targets of all symbolic links in the source
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub copy_links: bool,
    /// Stay on the file system of the source
    #[arg(long, requires = "stdio", help_heading = STDIO)]
    pub one_file_system: bool,
    /// With -r: also create symbolic links that may point outside DST
    #[arg(long)]
    pub all_links: bool,
    /// With -r: compare files of equal size by hash, not by time; the server needs --hash
    #[arg(long)]
    pub hash: bool,
    /// With -r: fail if the server's list of files is longer than this
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_some_bytes)]
    pub max_list: u64,
    /// Connections per file; `auto` adds connections while the rate grows
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = connections)]
    #[arg(env = "THALWEG_CONNECTIONS", hide_env = true)]
    pub connections: Connections,
    /// Verify each file with this list of hashes, as sha256sum, b3sum or xxhsum write it
    #[arg(long, value_name = "FILE|URL")]
    pub sums: Option<OsString>,
    /// Verify the file with this SHA-256 hash
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
    /// Verify the file with this BLAKE3 hash
    #[arg(long, value_name = "HEX")]
    pub blake3: Option<String>,
    /// Read the file back from the device, and compare its hash with yours or with that of the server
    ///
    /// With -r, files are read back from the page cache, and unchanged files are compared too. A server sends hashes
    /// only with --hash.
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub durable: FsyncArgs,
    /// For https: trust the certificates in this PEM file instead of those of the system
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Do not read user names and passwords from ~/.netrc
    #[arg(long)]
    pub no_netrc: bool,
    /// Send this header, `NAME: VALUE`; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// Give up after this many retries in a row without new data [default: 5, or 0 if the first connection fails]
    #[arg(long, value_name = "N", env = "THALWEG_RETRIES", hide_env = true)]
    pub retries: Option<u32>,
    /// Replace a connection that delivers nothing for this long
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        env = "THALWEG_STALL",
        hide_env = true
    )]
    #[arg(value_parser = parse_duration)]
    pub stall: Duration,
    /// Limit the total rate, in bytes per second, such as 10M
    #[arg(long, value_name = "RATE", env = "THALWEG_LIMIT", hide_env = true)]
    #[arg(value_parser = parse_rate)]
    pub limit: Option<u64>,
    /// Limit the rate of each connection, in bytes per second
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub limit_each: Option<u64>,
    /// Also print the CPU time and the methods
    #[arg(short, long, env = "THALWEG_VERBOSE", hide_env = true, value_parser = flag())]
    pub verbose: bool,
    #[command(flatten)]
    pub chosen: SelectionArgs,
    #[command(flatten)]
    pub given: GivenArgs,
    #[command(flatten)]
    pub choice: MethodArgs,
    #[command(flatten)]
    pub shown: ProgressArgs,
    /// The log of the changes.
    #[arg(skip)]
    pub log: Option<Arc<ChangeLog>>,
    /// `true` if no summary is printed at the end.
    #[arg(skip)]
    pub no_summary: bool,
}

/// Returns `true` for a URL, and `false` for a path.
pub fn is_url(word: &OsStr) -> bool {
    word.as_bytes().windows(3).any(|bytes| bytes == b"://")
}

/// Parses a URL that the user wrote.
pub fn parse_url(word: &OsStr) -> Result<FetchUrl, FetchError> {
    let text = word.to_str().ok_or_else(|| {
        FetchError::Usage(format!(
            "{} is not a valid URL: it is not UTF-8",
            quoted(Path::new(word))
        ))
    })?;
    FetchUrl::parse(text)
}

fn connections(text: &str) -> Result<Connections, String> {
    match text {
        "auto" => Ok(Connections::Auto),
        number => match number.parse() {
            Ok(number @ 1..=64) => Ok(Connections::Exactly(number)),
            _ => Err("expected a number from 1 to 64, or auto".to_owned()),
        },
    }
}

const EXAMPLES: &str = "\
Examples:
  thalweg fetch http://host/big.iso         repeat it to continue
  thalweg fetch http://host/big.iso /srv/images/
  thalweg fetch --sha256 e3b0...b855 http://host/big.iso
  thalweg fetch --sums http://host/SHA256SUMS http://host/big.iso
  thalweg fetch http://host/a.tar.gz - | tar xz
  thalweg fetch --header 'Authorization: Bearer TOKEN' http://host/big.iso
  thalweg fetch --json http://host/big.iso | jq .mechanism
  thalweg fetch -r http://host:8000/photos/ photos

Proxies: http_proxy, https_proxy, all_proxy and no_proxy, as in curl.

Exit status:
  0  success
  1  error, or a hash that differs
  2  wrong usage
  3  incomplete: run the same command again to continue
  4  not supported, such as an unknown URL scheme";

impl FetchArgs {
    /// Returns the default values of all options.
    pub fn defaults() -> Self {
        let parser = Self::augment_args(Command::new("fetch"));
        let matches = parser.get_matches_from(["fetch", "DST"]);
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Returns `true` for `-r` or `-a`, with which the URL is a directory.
    pub fn is_of_trees(&self) -> bool {
        self.recursive || self.archive
    }

    /// Returns the request for the server's list of files. `is_stream`: `true` if the server is at the other end of a
    /// byte stream.
    pub fn list_request(&self, is_stream: bool) -> Result<ListRequest, CommandFailure> {
        let (copy_links, one_file_system) = (self.copy_links, self.one_file_system);
        Ok(ListRequest {
            xattrs: self.archive && is_stream,
            specials: is_stream,
            copy_links,
            one_file_system,
            ..self.chosen.list(self.encoded)?
        })
    }

    /// Returns the path of an option.
    pub fn path_of(&self, option: Option<&Path>) -> Option<PathBuf> {
        option.map(|path| if self.encoded { decoded(path.as_os_str()) } else { path.to_owned() })
    }

    /// Splits the arguments into URLs and destination.
    pub fn split(&self) -> (&[OsString], Option<PathBuf>) {
        match self.words.split_last() {
            Some((last, urls)) if !urls.is_empty() && !is_url(last) => {
                (urls, Some(PathBuf::from(last)))
            }
            _ => (&self.words, None),
        }
    }
}
