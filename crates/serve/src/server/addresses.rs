//! Counts connections per client address, so that one client cannot use up all connections.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Connections per address, for all workers together.
#[derive(Debug)]
pub struct Addresses {
    /// Maximum number of connections per address. `None`: no limit, and connections are not counted.
    most: Option<usize>,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// The default limit per address is at least this number, unless fewer connections are allowed in total.
const LEAST: usize = 64;

impl Addresses {
    /// Sets the limit per address. `Some(0)`: no limit. `None`: three quarters of `of_all`, the maximum number of
    /// connections.
    pub fn new(most: Option<usize>, of_all: usize) -> Self {
        let usual = (of_all / 4 * 3).max(of_all.min(LEAST));
        let most = Some(most.unwrap_or(usual)).filter(|most| *most > 0);
        Self { most, counts: Mutex::default() }
    }

    /// Counts one more connection. Returns `false`, and counts nothing, if the address has reached its limit.
    pub fn enter(&self, client: IpAddr) -> bool {
        let Some(most) = self.most else { return true };
        let mut counts = self.counts();
        let count = counts.entry(network(client)).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        true
    }

    /// Removes a counted connection that has ended.
    pub fn leave(&self, client: IpAddr) {
        if self.most.is_none() {
            return;
        }
        let (mut counts, client) = (self.counts(), network(client));
        if let Some(count) = counts.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&client);
            }
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key under which connections of this address are counted. For IPv6 this is the /64 network:
/// its addresses usually belong to one host.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from(address.to_bits() & !u128::from(u64::MAX)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_its_own_count() {
        let addresses = Addresses::new(Some(2), 10);
        assert!(addresses.enter(ip("192.0.2.1")) && addresses.enter(ip("::ffff:192.0.2.1")));
        assert!(!addresses.enter(ip("192.0.2.1")) && addresses.enter(ip("192.0.2.2")));
        addresses.leave(ip("192.0.2.1"));
        assert!(addresses.enter(ip("192.0.2.1")));
        assert!(addresses.enter(ip("2001:db8::1")) && addresses.enter(ip("2001:db8::2:1")));
        assert!(!addresses.enter(ip("2001:db8::3")) && addresses.enter(ip("2001:db8:0:1::1")));
    }

    #[test]
    fn by_default_an_address_may_have_three_quarters() {
        let most = |most, of_all| Addresses::new(most, of_all).most;
        assert_eq!(most(None, 1000), Some(750));
        assert_eq!(most(None, 70), Some(64));
        assert_eq!(most(None, 3), Some(3));
        assert_eq!((most(Some(5), 1000), most(Some(0), 1000)), (Some(5), None));
    }
}
