//! The wrong passwords of each address, so that a client that connects again and again cannot try
//! passwords without end.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::server::counted;

/// The number of wrong passwords of an address within the time.
const MOST: usize = 10;
const TIME: Duration = Duration::from_secs(600);
/// The maximum number of addresses. Beyond it, the one that began first is forgotten.
const ADDRESSES: usize = 4096;

/// The addresses with wrong passwords.
#[derive(Default)]
pub struct Failures {
    by_address: Mutex<HashMap<IpAddr, Failed>>,
    /// Hashes the names of users: a client can send names of 4 KiB.
    names: RandomState,
}

struct Failed {
    /// The time of the first wrong password.
    since: Instant,
    /// The hash of the user's name for each wrong password.
    names: Vec<u64>,
}

impl Failed {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= TIME
    }
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Failed>> {
        let locked = self.by_address.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no password of this address is verified at this time.
    pub fn are_too_many(&self, address: IpAddr, now: Instant) -> bool {
        let all = self.lock();
        let found = all.get(&counted(address));
        found.is_some_and(|failed| failed.names.len() >= MOST && !failed.is_over(now))
    }

    /// Counts a wrong password for this name. A correct one clears the count of its name at its
    /// address, and no other one: the owner of an account could otherwise try passwords of other
    /// users without end.
    pub fn count(&self, address: IpAddr, name: &str, is_correct: bool, now: Instant) {
        let address = counted(address);
        let name = self.names.hash_one(name);
        let mut all = self.lock();
        if is_correct {
            if let Some(failed) = all.get_mut(&address) {
                failed.names.retain(|other| *other != name);
                if failed.names.is_empty() {
                    all.remove(&address);
                }
            }
            return;
        }
        if !all.contains_key(&address) && all.len() >= ADDRESSES {
            all.retain(|_, failed| !failed.is_over(now));
            let first = all.iter().min_by_key(|(_, failed)| failed.since);
            let first = first.map(|(address, _)| *address);
            if let Some(first) = first.filter(|_| all.len() >= ADDRESSES) {
                all.remove(&first);
            }
        }
        let new = || Failed {
            since: now,
            names: Vec::new(),
        };
        let failed = all.entry(address).or_insert_with(new);
        if failed.is_over(now) {
            *failed = new();
        }
        // More are not verified.
        if failed.names.len() < MOST {
            failed.names.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn wrong_passwords_are_counted_by_address() {
        let (failures, start) = (Failures::default(), Instant::now());
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..MOST {
            assert!(!failures.are_too_many(one, start));
            failures.count(one, "ann", false, start);
        }
        assert!(failures.are_too_many(one, start));
        assert!(!failures.are_too_many(other, start));
        let over = start + TIME;
        assert!(failures.are_too_many(one, over - Duration::from_nanos(1)));
        assert!(!failures.are_too_many(one, over));
        // The count begins again.
        failures.count(one, "ann", false, over);
        assert!(!failures.are_too_many(one, over));
        // All addresses of a network of IPv6 count as one.
        for host in 0..MOST {
            let from = address(&format!("2001:db8::{host}"));
            failures.count(from, "ann", false, start);
        }
        assert!(failures.are_too_many(address("2001:db8::ffff"), start));
        assert!(!failures.are_too_many(address("2001:db8:0:1::"), start));
    }

    #[test]
    fn a_correct_password_clears_the_count_of_its_name() {
        let (failures, now) = (Failures::default(), Instant::now());
        let one = address("10.0.0.1");
        for _ in 0..3 {
            for _ in 1..MOST {
                failures.count(one, "ann", false, now);
            }
            assert!(!failures.are_too_many(one, now));
            failures.count(one, "ann", true, now);
        }
        assert!(failures.lock().is_empty());
    }

    #[test]
    fn the_owner_of_an_account_cannot_try_other_passwords_without_end() {
        let (failures, now) = (Failures::default(), Instant::now());
        let one = address("10.0.0.1");
        for (tries, name) in ["bob", "eve"].into_iter().cycle().take(MOST).enumerate() {
            assert!(!failures.are_too_many(one, now), "{tries}");
            failures.count(one, name, false, now);
            failures.count(one, "ann", false, now);
            failures.count(one, "ann", true, now);
        }
        assert!(failures.are_too_many(one, now));
        // More than these are not stored.
        failures.count(one, "bob", false, now);
        assert_eq!(failures.lock()[&one].names.len(), MOST);
        failures.count(one, "bob", true, now);
        assert!(!failures.are_too_many(one, now));
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (failures, start) = (Failures::default(), Instant::now());
        let numbered = |number| IpAddr::from(Ipv4Addr::from_bits(number));
        for number in 0..=ADDRESSES as u32 {
            let now = start + Duration::from_millis(u64::from(number));
            failures.count(numbered(number), "ann", false, now);
        }
        assert_eq!(failures.lock().len(), ADDRESSES);
        let has = |number| failures.lock().contains_key(&numbered(number));
        assert!(!has(0) && has(1) && has(ADDRESSES as u32));
        // Those whose time is over are removed first.
        failures.count(numbered(u32::MAX), "ann", false, start + 2 * TIME);
        assert_eq!(failures.lock().len(), 1);
    }
}
