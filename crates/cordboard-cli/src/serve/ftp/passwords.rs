//! Verifies passwords, one at a time and in the order of arrival. All verifications use the
//! same memory. If each session allocated its own, glibc would keep it in the arena of each
//! thread (malloc(3)).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{Output, PasswordHash, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};

use super::failures::Failures;

/// The maximum memory of a hash in KiB, and the maximum number of passes. `--hash-password`
/// uses 19 MiB and 2 passes.
const LARGEST: u32 = 256 << 10;
const MOST_PASSES: u32 = 16;

/// A hash of the file of users.
pub struct Hash {
    argon: Argon2<'static>,
    salt: Vec<u8>,
    length: usize,
    /// `None`: no password is correct.
    output: Option<Output>,
}

impl Hash {
    /// Parses `$argon2id$…`.
    ///
    /// # Errors
    ///
    /// The reason why passwords cannot be verified with this hash.
    pub fn parse(text: &str) -> Result<Hash, String> {
        let parsed = || -> argon2::password_hash::Result<Hash> {
            use argon2::password_hash::Error;
            let hash = PasswordHash::new(text)?;
            let params = Params::try_from(&hash)?;
            let version = hash.version.map(Version::try_from).transpose()?;
            let output = hash.hash.ok_or(Error::Password)?;
            let salt = hash.salt.ok_or(Error::Password)?;
            let algorithm = Algorithm::try_from(hash.algorithm)?;
            Ok(Hash {
                argon: Argon2::new(algorithm, version.unwrap_or_default(), params),
                salt: salt.decode_b64(&mut [0; 64])?.to_vec(),
                length: output.len(),
                output: Some(output),
            })
        };
        let hash = parsed().map_err(|_| "not a hash from --hash-password".to_owned())?;
        let params = hash.argon.params();
        if params.m_cost() > LARGEST || params.t_cost() > MOST_PASSES {
            return Err(format!(
                "this hash needs {} KiB and {} passes; at most {LARGEST} KiB and {MOST_PASSES} \
                 passes are accepted",
                params.m_cost(),
                params.t_cost(),
            ));
        }
        Ok(hash)
    }

    /// Returns a hash that takes as long as this one, and for which no password is correct.
    pub fn without_password(&self) -> Hash {
        Hash {
            argon: self.argon.clone(),
            salt: self.salt.clone(),
            length: self.length,
            output: None,
        }
    }

    fn verify(&self, password: &[u8], memory: &mut Vec<Block>) -> Result<bool, NotVerified> {
        let blocks = self.argon.params().block_count();
        if memory.len() < blocks {
            *memory = Vec::new();
            memory
                .try_reserve_exact(blocks)
                .map_err(|_| NotVerified::NoMemory)?;
            memory.resize(blocks, Block::new());
        }
        let mut made = [0; Output::MAX_LENGTH];
        let made = &mut made[..self.length];
        let argon = &self.argon;
        let done =
            argon.hash_password_into_with_memory(password, &self.salt, made, &mut memory[..]);
        // The outputs are compared in constant time.
        Ok(done.is_ok() && self.output.is_some() && Output::new(made).ok() == self.output)
    }
}

/// Returns the hash of a password, in the format of the file of users.
pub fn hash(password: &[u8]) -> Result<String, String> {
    use argon2::password_hash::PasswordHasher;
    let salt = SaltString::generate(&mut OsRng);
    let hash = Argon2::default().hash_password(password, &salt);
    hash.map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

/// Why a password was not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotVerified {
    /// The turn has not come in time: too many other passwords wait.
    Busy,
    /// The server is shutting down.
    Ending,
    NoMemory,
    /// The address has sent too many wrong passwords.
    Refused,
}

/// The memory of the verifications, and the sessions that wait for it.
#[derive(Default)]
pub struct Verifier {
    memory: Mutex<Vec<Block>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    failures: Failures,
}

#[derive(Default)]
struct Queue {
    /// The first one has its turn.
    tickets: VecDeque<u64>,
    next: u64,
    is_closed: bool,
}

/// The turn of a session. Its drop passes the turn on.
struct Turn<'a> {
    verifier: &'a Verifier,
    ticket: u64,
}

impl Verifier {
    /// Returns whether the password from this address matches the hash of this user. Waits for
    /// its turn until this time.
    pub fn verify(
        &self,
        (name, hash): (&str, &Hash),
        password: &[u8],
        from: IpAddr,
        until: Instant,
    ) -> Result<bool, NotVerified> {
        self.admit(from)?;
        let _turn = self.turn(until)?;
        // Others of this address may have failed during the wait.
        self.admit(from)?;
        let mut memory = ignore_panics(self.memory.lock());
        let is_correct = hash.verify(password, &mut memory)?;
        self.failures.count(from, name, is_correct, Instant::now());
        Ok(is_correct)
    }

    fn admit(&self, from: IpAddr) -> Result<(), NotVerified> {
        match self.failures.are_too_many(from, Instant::now()) {
            true => Err(NotVerified::Refused),
            false => Ok(()),
        }
    }

    /// Ends the waits of all sessions.
    pub fn close(&self) {
        self.queue().is_closed = true;
        self.changed.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        ignore_panics(self.queue.lock())
    }

    fn turn(&self, until: Instant) -> Result<Turn<'_>, NotVerified> {
        let mut queue = self.queue();
        let ticket = queue.next;
        queue.next += 1;
        queue.tickets.push_back(ticket);
        let turn = Turn {
            verifier: self,
            ticket,
        };
        let failed = loop {
            if queue.is_closed {
                break NotVerified::Ending;
            }
            if queue.tickets.front() == Some(&ticket) {
                return Ok(turn);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break NotVerified::Busy;
            }
            (queue, _) = ignore_panics(self.changed.wait_timeout(queue, left));
        };
        // The drop of the turn locks the queue.
        drop(queue);
        drop(turn);
        Err(failed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.verifier.queue();
        queue.tickets.retain(|ticket| *ticket != self.ticket);
        drop(queue);
        self.verifier.changed.notify_all();
    }
}

/// Returns the value of a poisoned lock as well: a panic leaves the queue and the memory
/// valid.
fn ignore_panics<T>(locked: Result<T, PoisonError<T>>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A hash that needs little time.
    const SMALL: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$";

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(1000)
    }

    fn hash_with(params: &str) -> String {
        let output = "A".repeat(43);
        format!("$argon2id$v=19${params}$c29tZXNhbHQ${output}")
    }

    #[test]
    fn the_memory_is_that_of_the_largest_hash() {
        let verifier = Verifier::default();
        let sizes = [8, 1024, 64].map(|size| {
            let hash = Hash::parse(&hash_with(&format!("m={size},t=1,p=1"))).unwrap();
            assert_eq!(
                verifier.verify(("ann", &hash), b"x", HERE, far()),
                Ok(false)
            );
            verifier.memory.lock().unwrap().capacity()
        });
        assert_eq!(sizes, [8, 1024, 1024]);
    }

    #[test]
    fn an_address_with_too_many_wrong_passwords_is_refused() {
        let verifier = Verifier::default();
        let hash = Hash::parse(&hash_with("m=8,t=1,p=1")).unwrap();
        let verify = |from| verifier.verify(("ann", &hash), b"x", from, far());
        let mut tries = 0;
        while verify(HERE) == Ok(false) {
            tries += 1;
        }
        assert_eq!(tries, 10);
        assert_eq!(verify(HERE), Err(NotVerified::Refused));
        assert_eq!(verify("10.0.0.1".parse().unwrap()), Ok(false));
    }

    #[test]
    fn hashes_that_need_too_much_are_refused() {
        assert!(Hash::parse(&hash_with("m=262144,t=16,p=1")).is_ok());
        for params in ["m=262145,t=1,p=1", "m=8,t=17,p=1", "m=4294967295,t=1,p=1"] {
            let error = Hash::parse(&hash_with(params)).err().unwrap();
            assert!(error.contains("262144 KiB and 16 passes"), "{error}");
        }
        for text in [
            SMALL,
            "secret",
            "$2b$10$c29tZXNhbHQ",
            &hash_with("m=7,t=1,p=1"),
        ] {
            let error = Hash::parse(text).err().unwrap();
            assert!(error.contains("--hash-password"), "{error}");
        }
    }

    #[test]
    fn turns_are_taken_in_the_order_of_arrival() {
        let verifier = Verifier::default();
        let first = verifier.turn(far()).ok().unwrap();
        let busy = verifier.turn(Instant::now()).err();
        assert_eq!(busy, Some(NotVerified::Busy));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for name in 1..=3 {
                let (order, verifier) = (&order, &verifier);
                scope.spawn(move || {
                    let turn = verifier.turn(far()).ok();
                    order.lock().unwrap().push(name);
                    drop(turn);
                });
                while verifier.queue().tickets.len() < 1 + name {
                    std::thread::yield_now();
                }
            }
            assert!(order.lock().unwrap().is_empty());
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
        assert!(verifier.queue().tickets.is_empty());
    }

    #[test]
    fn the_end_of_the_server_ends_the_waits() {
        let verifier = Verifier::default();
        let first = verifier.turn(far()).ok().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| verifier.turn(far()).err());
            while verifier.queue().tickets.len() < 2 {
                std::thread::yield_now();
            }
            verifier.close();
            assert_eq!(waits.join().unwrap(), Some(NotVerified::Ending));
        });
        drop(first);
        assert_eq!(verifier.turn(far()).err(), Some(NotVerified::Ending));
    }
}
