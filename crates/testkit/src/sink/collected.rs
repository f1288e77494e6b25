//! What arrived at a sink.

use crate::expect::Expect;

/// What arrived at a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collected {
    /// These bytes, and the sizes of their messages for kinds that keep
    /// boundaries.
    Bytes(Vec<u8>, Option<Vec<usize>>),
    /// This many bytes, which were not kept.
    Count(u64),
    /// Numbers with this sum.
    Sum(u128),
    /// Not known.
    Unknown,
}

impl Collected {
    /// Checks that the first `length` bytes of what was expected have arrived,
    /// and nothing else.
    ///
    /// # Errors
    ///
    /// A message that says what differs.
    pub fn check(&self, expect: &Expect, length: u64) -> Result<(), String> {
        match self {
            Collected::Unknown => Ok(()),
            Collected::Count(n) if *n == length => Ok(()),
            Collected::Count(n) => Err(format!("{n} bytes arrived, {length} were written")),
            Collected::Sum(sum) => match expect.sum(length) {
                Some(wanted) if wanted != *sum => {
                    Err(format!("numbers add up to {sum}, not {wanted}"))
                }
                _ => Ok(()),
            },
            Collected::Bytes(bytes, _) if bytes.len() as u64 != length => {
                let found = bytes.len();
                Err(format!("{found} bytes arrived, {length} were written"))
            }
            Collected::Bytes(bytes, _) => expect.check(bytes),
        }
    }

    /// Returns the sizes of the messages, for kinds that keep boundaries.
    pub fn messages(&self) -> Option<&[usize]> {
        match self {
            Collected::Bytes(_, messages) => messages.as_deref(),
            _ => None,
        }
    }
}
