//! Proxies from environment variables.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use url::Url;

use super::{FetchError, FetchUrl};

/// Schemes of proxies that curl supports and this client does not.
const KNOWN_SCHEMES: [&str; 5] = ["https", "socks4", "socks4a", "socks5", "socks5h"];

/// Chooses the proxy for each server.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<HttpProxy>,
    https: Option<HttpProxy>,
    /// Servers that are contacted directly.
    direct: Vec<String>,
}

/// A proxy that is contacted over http.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProxy {
    pub host: String,
    pub port: u16,
    /// Value of the header Proxy-Authorization.
    pub authorization: Option<String>,
}

impl Proxies {
    /// Reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in lower or upper case. As in curl,
    /// `HTTP_PROXY` is ignored: a CGI server sets it to the value of a header that the client chose.
    pub fn of_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, FetchError> {
        let named = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let any = |name: &str| named(name).or_else(|| named(&name.to_uppercase()));
        let parse = |name: &str, text: Option<String>| {
            text.map(|text| HttpProxy::parse(name, text.trim())).transpose()
        };
        let all = any("all_proxy");
        Ok(Self {
            http: parse("http_proxy", named("http_proxy").or_else(|| all.clone()))?,
            https: parse("https_proxy", any("https_proxy").or(all))?,
            direct: any("no_proxy").map(|list| hosts(&list)).unwrap_or_default(),
        })
    }

    /// Returns the proxy for a server.
    pub fn of(&self, target: &FetchUrl) -> Option<&HttpProxy> {
        let proxy = if target.is_secure() { &self.https } else { &self.http };
        let (host, _) = target.host();
        proxy.as_ref().filter(|_| !self.direct.iter().any(|listed| is_listed(&host, listed)))
    }
}

impl HttpProxy {
    /// Returns the name for messages.
    pub fn name(&self) -> String {
        format!("the proxy {}:{}", self.host, self.port)
    }

    /// Returns the CONNECT request for a tunnel to a server.
    pub fn connect(&self, target: &FetchUrl) -> String {
        let (host, port) = target.host();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let user = self.authorization.as_ref();
        let user = user.map(|user| format!("Proxy-Authorization: {user}\r\n")).unwrap_or_default();
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{user}\r\n")
    }

    fn parse(name: &str, text: &str) -> Result<Self, FetchError> {
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        // The value may hold a password, so messages do not repeat it.
        let usage = |why: &str| FetchError::Usage(format!("{name}: {why}"));
        let url = Url::parse(&full).map_err(|_| usage("not a valid proxy URL"))?;
        if url.scheme() != "http" {
            // Messages name only known schemes: an unknown one may be a user name, and the text after it a password.
            let known = KNOWN_SCHEMES.into_iter().find(|known| *known == url.scheme());
            let scheme = known.unwrap_or("other");
            let why = format!("{name}: {scheme} proxies are not supported; use an http proxy");
            return Err(FetchError::Unsupported(why));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| usage("not a valid proxy URL"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let has_user = !url.username().is_empty() || url.password().is_some();
        let authorization = has_user.then(|| {
            let user = [decoded(url.username()), decoded(url.password().unwrap_or_default())];
            format!("Basic {}", STANDARD.encode(user.join(&b':')))
        });
        // The default port is 1080, as in curl. `http://host:80` names port 80 explicitly, but `url` drops it as the
        // default of http.
        let says_80 = full.trim_end_matches('/').ends_with(":80");
        let port = url.port().unwrap_or(if says_80 { 80 } else { 1080 });
        Ok(Self { host, port, authorization })
    }
}

fn hosts(list: &str) -> Vec<String> {
    let words = list.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns `true` if a `no_proxy` entry matches the host: `*` matches all, a name matches itself and its subdomains.
/// An entry may also be an address or a network.
fn is_listed(host: &str, listed: &str) -> bool {
    let host = host.trim_end_matches('.').to_lowercase();
    if listed == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        let bare = listed.trim_start_matches('[').trim_end_matches(']');
        return match bare.split_once('/') {
            Some((network, bits)) => is_in(address, network, bits),
            None => bare.parse() == Ok(address),
        };
    }
    let name = listed.trim_start_matches('.').trim_end_matches('.');
    let below = host.strip_suffix(name);
    !name.is_empty() && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

fn is_in(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let same = |one: u128, other: u128, width: u32| {
        bits <= width && (bits == 0 || (one ^ other) >> (width - bits) == 0)
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => same(a.to_bits().into(), n.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => same(a.to_bits(), n.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(set: &[(&str, &str)]) -> Result<Proxies, FetchError> {
        Proxies::of_environment(|name| {
            set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn port(set: &[(&str, &str)], url: &str) -> Option<u16> {
        proxies(set).unwrap().of(&FetchUrl::parse(url).unwrap()).map(|proxy| proxy.port)
    }

    #[test]
    fn each_scheme_has_its_proxy_and_all_have_one() {
        let set = [("http_proxy", "a:1"), ("HTTPS_PROXY", "http://b:2/"), ("ALL_PROXY", "c:3")];
        assert_eq!(port(&set, "http://h/"), Some(1));
        assert_eq!(port(&set, "https://h/"), Some(2));
        assert_eq!(port(&set[2..], "http://h/"), Some(3));
        assert_eq!(port(&[("HTTP_PROXY", "a:1"), ("http_proxy", "")], "http://h/"), None);
        assert_eq!(port(&[("http_proxy", "a")], "http://h/"), Some(1080));
        assert_eq!(port(&[("http_proxy", "http://a:80/")], "http://h/"), Some(80));
        let user = proxies(&[("http_proxy", "http://u:p%40@[::1]:9")]).unwrap().http.unwrap();
        assert_eq!((&*user.host, user.authorization.as_deref()), ("::1", Some("Basic dTpwQA==")));
        assert!(matches!(proxies(&[("all_proxy", "socks5://a")]), Err(FetchError::Unsupported(_))));
        assert!(matches!(proxies(&[("https_proxy", "http://")]), Err(FetchError::Usage(_))));
    }

    #[test]
    fn a_server_that_is_listed_is_asked_directly() {
        let is_direct = |list: &str, host: &str| {
            port(&[("http_proxy", "a:1"), ("no_proxy", list)], &format!("http://{host}/")).is_none()
        };
        for (list, host) in [
            ("*", "any"),
            ("example.org", "example.org"),
            (".example.org", "www.Example.org:8080"),
            ("x, 127.0.0.1", "127.0.0.1"),
            ("10.0.0.0/8", "10.200.3.4"),
            ("::1", "[::1]:80"),
            ("fe80::/10", "[fe80::1]"),
        ] {
            assert!(is_direct(list, host), "{list} {host}");
        }
        for (list, host) in [
            ("", "h"),
            ("ample.org", "example.org"),
            ("www.example.org", "example.org"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.0.0.0/99", "10.0.0.1"),
            (".", "h"),
        ] {
            assert!(!is_direct(list, host), "{list} {host}");
        }
    }
}
