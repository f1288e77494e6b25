//! The state that all sessions share, and the number of clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use super::budget::Budget;
use super::log::Log;
use super::root::Root;
use super::users::Users;
use crate::registry::Directory;

/// What all sessions share.
pub struct Server {
    pub root: Root,
    pub users: Users,
    pub log: Log,
    pub tls: Option<Arc<ServerConfig>>,
    pub require_tls: bool,
    /// The rate limit of each transfer in bytes a second; 0: no limit.
    pub rate: u64,
    pub idle: Duration,
    pub passive_ports: Option<(u16, u16)>,
    /// The number of the passive ports at which no session listens.
    pub ports: Arc<Budget>,
    /// The directory in which transfers are listed for `cordboard top`. `None`: none is
    /// listed.
    pub list: Option<Directory>,
    /// The last transfer could not be listed.
    pub list_fails: AtomicBool,
    /// The memory of the listings.
    pub listings: Arc<Budget>,
    /// The read end of a pipe that hangs up when the server shuts down.
    pub ending: OwnedFd,
    /// The server is shutting down: at this time, running transfers are cancelled.
    pub deadline: OnceLock<Instant>,
    pub clients: Arc<Clients>,
}

impl Server {
    /// Returns whether the server is shutting down.
    pub fn is_ending(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Returns a server of this directory, without users. `ending` hangs up when it shuts down.
    #[cfg(test)]
    pub fn with_end(ending: OwnedFd) -> Server {
        Server {
            root: Root::open(".".as_ref()).unwrap(),
            users: Users::read(None, true).unwrap(),
            log: Log::open(None).unwrap(),
            tls: None,
            require_tls: false,
            rate: 0,
            idle: Duration::from_secs(3600),
            passive_ports: None,
            ports: Budget::new(1),
            list: None,
            list_fails: AtomicBool::new(false),
            listings: Budget::new(0),
            ending,
            deadline: OnceLock::new(),
            clients: Arc::new(Clients::new(1, 1)),
        }
    }
}

/// The clients that are connected.
pub struct Clients {
    by_address: Mutex<HashMap<IpAddr, usize>>,
    left: Condvar,
    most: usize,
    most_of_address: usize,
}

/// The count of one client. Its drop removes the client.
pub struct Seat {
    clients: Arc<Clients>,
    address: IpAddr,
}

impl Clients {
    pub fn new(most: usize, most_of_address: usize) -> Clients {
        Clients {
            by_address: Mutex::default(),
            left: Condvar::new(),
            most,
            most_of_address,
        }
    }

    /// Counts a client. Returns `None` if there are too many.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let address = counted(address);
        let mut all = self.by_address.lock().ok()?;
        let of_address = all.get(&address).copied().unwrap_or(0);
        if all.values().sum::<usize>() >= self.most || of_address >= self.most_of_address {
            return None;
        }
        all.insert(address, of_address + 1);
        Some(Seat {
            clients: Arc::clone(self),
            address,
        })
    }

    /// Waits until all clients have left, or until this time. Returns the number of clients
    /// that remain.
    pub fn wait_for_all(&self, until: Instant) -> usize {
        let Ok(mut all) = self.by_address.lock() else {
            return 0;
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if all.is_empty() || left.is_zero() {
                return all.values().sum();
            }
            let Ok((next, _)) = self.left.wait_timeout(all, left) else {
                return 0;
            };
            all = next;
        }
    }
}

/// Returns the address by which a client is counted. A host with IPv6 usually has all
/// addresses of a network of 64 bits.
pub fn counted(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Ok(mut all) = self.clients.by_address.lock() else {
            return;
        };
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
        self.clients.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted() {
        let clients = Arc::new(Clients::new(3, 2));
        let (one, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let first = clients.enter(one);
        let second = clients.enter(one);
        assert!(first.is_some() && second.is_some());
        assert!(clients.enter(one).is_none(), "too many of one address");
        let third = clients.enter(other);
        assert!(third.is_some());
        assert!(clients.enter("::2".parse().unwrap()).is_none(), "too many");
        drop(first);
        assert!(clients.enter(one).is_some());
        drop((second, third));
        assert_eq!(clients.wait_for_all(Instant::now()), 0);
    }

    #[test]
    fn clients_with_ipv6_are_counted_by_network() {
        let clients = Arc::new(Clients::new(9, 1));
        let enter = |address: &str| clients.enter(address.parse().unwrap());
        let first = enter("2001:db8:0:1::1");
        assert!(first.is_some());
        assert!(enter("2001:db8:0:1:ffff::2").is_none(), "the same /64");
        let others = [
            enter("2001:db8:0:2::1"),
            enter("10.0.0.1"),
            enter("10.0.0.2"),
        ];
        assert!(others.iter().all(Option::is_some));
        drop((first, others));
        assert_eq!(clients.wait_for_all(Instant::now()), 0);
    }
}
