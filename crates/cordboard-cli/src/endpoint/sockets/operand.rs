//! The operand that is being opened, for error messages.

use cordboard::Side;
use rustix::io::Errno;

use crate::problem::{Action, Problem};

/// The operand that is being opened, for error messages.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// As it was given.
    pub shown: &'a str,
    /// The side that it is.
    pub side: Side,
}

impl Operand<'_> {
    /// A call that has failed.
    pub fn problem(self, errno: Errno, action: Action) -> Problem {
        Problem::call(self.shown, self.side, errno, action)
    }
}
