//! The query of a request for a list.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use percent_encoding::{percent_decode_str, percent_encode};

use super::PLAIN;

/// Options of a request for a list. Only a server on a byte stream accepts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Patterns of entries to leave out; the last one that matches decides.
    pub exclude: Vec<OsString>,
    /// The name of filter files. If it is set, the list contains their texts.
    pub filter_file: Option<OsString>,
    /// `true` to list extended attributes and ACLs.
    pub xattrs: bool,
    /// `true` to list FIFOs, sockets and devices. Otherwise they count as left out.
    pub specials: bool,
    /// `true` to list the targets of symbolic links in place of the links.
    pub copy_links: bool,
    /// `true` to leave out the entries of directories on other file systems.
    pub one_file_system: bool,
    /// `true` to list a file that is served alone as the only entry of a directory. If `false`, the answer is a
    /// redirect to the file.
    pub as_entry: bool,
}

const NAME: &str = "manifest";
const XATTRS: &str = "xattrs";
const SPECIALS: &str = "specials";
const COPY_LINKS: &str = "copy-links";
const ONE_FILE_SYSTEM: &str = "one-file-system";
const AS_ENTRY: &str = "as-entry";

/// Longest query, in bytes. A server accepts heads of 64 KiB.
pub const LONGEST_QUERY: usize = 48 << 10;

impl ListRequest {
    /// Returns the query.
    pub fn query(&self) -> String {
        let option = |name: &str, value: &OsStr| {
            format!("&{name}={}", percent_encode(value.as_bytes(), PLAIN))
        };
        let exclude = self.exclude.iter().map(|pattern| option("exclude", pattern));
        let filter_file = self.filter_file.iter().map(|name| option("filter-file", name));
        let flags = [
            (XATTRS, self.xattrs),
            (SPECIALS, self.specials),
            (COPY_LINKS, self.copy_links),
            (ONE_FILE_SYSTEM, self.one_file_system),
            (AS_ENTRY, self.as_entry),
        ];
        let flags = flags.into_iter().filter(|(_, is)| *is).map(|(name, _)| format!("&{name}"));
        let options = exclude.chain(filter_file).chain(flags);
        std::iter::once(NAME.to_owned()).chain(options).collect()
    }

    /// Parses a query. Returns `None` if it does not request a list, or if it contains an unknown option.
    pub fn parse(query: &str) -> Option<Self> {
        let mut options = query.split('&');
        let mut request = (options.next() == Some(NAME)).then(Self::default)?;
        for option in options {
            let flag = match option {
                XATTRS => Some(&mut request.xattrs),
                SPECIALS => Some(&mut request.specials),
                COPY_LINKS => Some(&mut request.copy_links),
                ONE_FILE_SYSTEM => Some(&mut request.one_file_system),
                AS_ENTRY => Some(&mut request.as_entry),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let (name, value) = option.split_once('=')?;
            let value = OsString::from_vec(percent_decode_str(value).collect());
            match name {
                "exclude" => request.exclude.push(value),
                "filter-file" => request.filter_file = Some(value),
                _ => return None,
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn other_queries_and_unknown_options_are_refused() {
        assert_eq!(ListRequest::parse("manifest"), Some(ListRequest::default()));
        let others = ["", "manifests", "tar", "manifest&", "manifest&exclude", "manifest&x=y"];
        let values = ["manifest&copy-links=1", "manifest&one-file-system=", "manifest&copy_links"];
        for query in others.into_iter().chain(values) {
            assert_eq!(ListRequest::parse(query), None, "{query}");
        }
    }

    proptest! {
        #[test]
        fn a_query_is_read_as_it_was_written(
            exclude in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5),
            filter_file in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
            [xattrs, specials, copy_links, one_file_system, as_entry]: [bool; 5],
        ) {
            let exclude = exclude.into_iter().map(OsString::from_vec).collect();
            let filter_file = filter_file.map(OsString::from_vec);
            let request = ListRequest {
                exclude,
                filter_file,
                xattrs,
                specials,
                copy_links,
                one_file_system,
                as_entry,
            };
            let query = request.query();
            prop_assert!(query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
            prop_assert_eq!(ListRequest::parse(&query), Some(request));
        }
    }
}
