//! Numbers that a client cannot predict.

use argon2::password_hash::rand_core::{OsRng, RngCore};

/// Returns a random number from the kernel (getrandom(2)). Returns 0 if that fails.
pub fn number() -> u64 {
    let mut bytes = [0; 8];
    let _ = OsRng.try_fill_bytes(&mut bytes);
    u64::from_ne_bytes(bytes)
}
