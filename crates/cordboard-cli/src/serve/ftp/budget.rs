//! What all sessions share: the memory of the listings, and the passive ports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::server::counted;

/// The maximum memory of all listings in bytes.
pub const LISTINGS: u64 = 256 << 20;

/// An amount that all sessions share. The clients of one address get at most as much as they leave:
/// they cannot use it up.
#[derive(Debug)]
pub struct Budget(Mutex<State>);

#[derive(Debug)]
struct State {
    left: u64,
    by_address: HashMap<IpAddr, u64>,
}

impl Budget {
    pub fn new(amount: u64) -> Arc<Budget> {
        Arc::new(Budget(Mutex::new(State {
            left: amount,
            by_address: HashMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a budget that one client of an address uses. Its drop gives it back.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    address: IpAddr,
    amount: u64,
}

impl Share {
    pub fn none_of(budget: &Arc<Budget>, address: IpAddr) -> Share {
        Share {
            budget: Arc::clone(budget),
            address: counted(address),
            amount: 0,
        }
    }

    /// Adds an amount to the share. Returns `false` if the budget has less, or if the address would
    /// have more than was left before.
    pub fn add(&mut self, amount: u64) -> bool {
        let mut state = self.budget.lock();
        let of_address = state.by_address.get(&self.address).copied().unwrap_or(0);
        let sum = of_address.saturating_add(amount);
        if sum > state.left {
            return false;
        }
        state.left -= amount;
        state.by_address.insert(self.address, sum);
        self.amount += amount;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.left += self.amount;
        if let Some(of_address) = state.by_address.get_mut(&self.address) {
            *of_address -= self.amount;
            if *of_address == 0 {
                state.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(budget: &Arc<Budget>, address: &str) -> Share {
        Share::none_of(budget, address.parse().unwrap())
    }

    #[test]
    fn the_shares_do_not_exceed_the_budget() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (share(&budget, "10.0.0.1"), share(&budget, "10.0.0.2"));
        assert!(!one.add(11) && !one.add(u64::MAX));
        assert!(one.add(6));
        assert!(!other.add(5) && other.add(4));
        assert!(!one.add(1));
        drop(other);
        assert!(!one.add(1), "it has more than is left");
        drop(one);
        assert!(share(&budget, "10.0.0.1").add(10));
        assert!(budget.lock().by_address.is_empty());
    }

    /// The clients of one address would otherwise deny it to all others.
    #[test]
    fn an_address_leaves_as_much_as_it_has() {
        let budget = Budget::new(1000);
        let mut shares = Vec::new();
        for (address, most) in [("10.0.0.1", 500), ("10.0.0.2", 250), ("2001:db8::1", 125)] {
            let mut of_address = 0;
            loop {
                let mut next = share(&budget, address);
                if !next.add(1) {
                    break;
                }
                of_address += 1;
                shares.push(next);
            }
            assert_eq!(of_address, most, "{address}");
        }
        // The addresses of a network of IPv6 count as one.
        assert!(!share(&budget, "2001:db8::2").add(1));
        assert!(share(&budget, "2001:db8:0:1::1").add(1));
    }
}
