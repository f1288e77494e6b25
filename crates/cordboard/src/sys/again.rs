//! Repetition of interrupted calls.

use rustix::io::{Errno, Result};

/// The maximum number of calls; signals do not interrupt a call this often.
const TRIES: u32 = 100;

/// Repeats a short call while it returns `EINTR`, but not forever: a file
/// system in user space may return it each time, and a cancel does not reach
/// this loop.
pub(crate) fn again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_interrupted_is_made_again_and_not_for_ever() {
        let mut calls = 0;
        let mut call = |good| {
            calls += 1;
            if calls > good {
                Ok(calls)
            } else {
                Err(Errno::INTR)
            }
        };
        assert_eq!(again(|| call(2)), Ok(3));
        assert_eq!(again(|| call(u32::MAX)), Err(Errno::INTR));
        assert_eq!(calls, 3 + TRIES);
    }
}
