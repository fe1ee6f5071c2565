//! Environment variables that name proxies: no value may crash the parser, add lines to a request, or show its password
//! in a message.

use thalweg_serve::client::{FetchUrl, Proxies};

const NAMES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
const PASSWORD: &str = "p4ssw0rd";

/// Runs one input: the values of the variables, one on each line.
pub fn run(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let values: Vec<&str> = text.splitn(NAMES.len(), '\n').collect();
    let value = |name: &str| {
        let at = NAMES.iter().position(|known| *known == name)?;
        values.get(at).map(|value| (*value).to_owned())
    };
    let proxies = match Proxies::of_environment(value) {
        Ok(proxies) => proxies,
        Err(error) => return assert!(!error.to_string().contains(PASSWORD), "{error}"),
    };
    for url in
        ["http://a.example/f", "https://a.example:8443/f", "http://[::1]/", "http://10.1.2.3/"]
    {
        let target = FetchUrl::parse(url).expect("a URL");
        let Some(proxy) = proxies.of(&target) else { continue };
        assert!(values.get(3).is_none_or(|list| list.trim() != "*"));
        assert!(!proxy.host.is_empty() && !proxy.name().contains(['\r', '\n']));
        let request = proxy.connect(&target);
        let lines = if proxy.authorization.is_some() { 4 } else { 3 };
        assert_eq!(request.matches("\r\n").count(), lines, "{request:?}");
        assert_eq!(request.matches(['\r', '\n']).count(), 2 * lines, "{request:?}");
    }
}
