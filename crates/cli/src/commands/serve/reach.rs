//! The addresses at which a server is reachable.

use std::net::{IpAddr, SocketAddr};

/// Returns addresses in the form used in URLs. For an unspecified address these are the host name, which other
/// machines may be unable to resolve, and each address of this machine except link-local ones.
pub fn reachable(address: SocketAddr) -> Vec<String> {
    if !address.ip().is_unspecified() {
        return vec![address.to_string()];
    }
    let mut hosts = vec![rustix::system::uname().nodename().to_string_lossy().into_owned()];
    // If the query fails, only the host name is returned.
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    hosts.extend(hosts_of(address.ip(), interfaces.iter().map(if_addrs::Interface::ip)));
    hosts.iter().map(|host| format!("{host}:{}", address.port())).collect()
}

/// Returns the addresses in `own` that a socket bound to `all` accepts: `::` accepts IPv4 too. Loopback addresses
/// come last, because other machines cannot use them.
fn hosts_of(all: IpAddr, own: impl Iterator<Item = IpAddr>) -> Vec<String> {
    let mut answered: Vec<_> = own.filter(|ip| all.is_ipv6() || ip.is_ipv4()).collect();
    answered.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    answered.dedup();
    let in_url = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    answered.iter().map(in_url).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_every_address_it_answers_at() {
        let own = ["127.0.0.1", "::1", "192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap());
        let hosts = |all: &str| hosts_of(all.parse().unwrap(), own.into_iter());
        assert_eq!(hosts("0.0.0.0"), ["192.0.2.7", "127.0.0.1"]);
        assert_eq!(hosts("::"), ["192.0.2.7", "[2001:db8::7]", "127.0.0.1", "[::1]"]);
    }

    #[test]
    fn one_address_is_itself_and_a_machine_has_its_loopback() {
        let one = "[::1]:80".parse().unwrap();
        assert_eq!(reachable(one), ["[::1]:80"]);
        let all = reachable("0.0.0.0:8000".parse().unwrap());
        assert!(all.len() > 1 && all.last().unwrap() == "127.0.0.1:8000", "{all:?}");
    }
}
