//! Calls that a signal has interrupted.

use rustix::io::{Errno, Result};

/// No call is interrupted by so many signals.
const TRIES: u32 = 100;

/// Makes a call that does not take long again, as long as it is `EINTR`, but not
/// for ever: a file system in user space may say so each time, and a cancel does
/// not reach this loop.
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
