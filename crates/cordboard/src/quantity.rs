//! Numbers with their unit, in messages.

use std::fmt;

/// A number of bytes: `1 byte`, `2 bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 byte"),
            n => write!(f, "{n} bytes"),
        }
    }
}
