//! Distinguishes the refusal of a call from the pending error of a socket.
//!
//! `EACCES` is both: seccomp filters return it for the calls that they refuse, and ICMPv6 makes
//! it the error of a connection (`icmpv6_err_convert`, net/ipv6/icmp.c). A filter refuses the
//! same call again. The kernel reports a socket's error once (`sock_error`,
//! include/net/sock.h), and the next call returns 0 or `EPIPE`, as after a regular end.

use crate::errno::Errno;

/// The error of a call that a filter may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) errno: Errno,
    /// The call as such is refused ([`Errno::is_refusal`]): another call may succeed.
    pub(crate) refused: bool,
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Errno {
        error.errno
    }
}

/// The error of a call that is not refused as such.
impl From<Errno> for CallError {
    fn from(errno: Errno) -> CallError {
        CallError {
            errno,
            refused: false,
        }
    }
}

impl CallError {
    /// The error of a call that `again` repeats without effect. It is a refusal if `again`
    /// returns it too.
    pub(super) fn new<T>(errno: Errno, again: impl FnOnce() -> Result<T, Errno>) -> CallError {
        let repeats = || errno != Errno::EACCES || again().err() == Some(errno);
        CallError {
            errno,
            refused: errno.is_refusal() && repeats(),
        }
    }

    /// Whether it is the pending error of a socket, although it may look like a refusal.
    pub(crate) fn was_pending(self) -> bool {
        self.errno.is_refusal() && !self.refused
    }
}

/// Makes a call that moves bytes, and repeats it after `EACCES`. If the repeated call moves
/// bytes, they count, and the error is dropped: the connection continues.
pub(crate) fn attempt(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, CallError> {
    let known = |errno: Errno| CallError {
        errno,
        refused: errno.is_refusal(),
    };
    let first = match call() {
        Err(errno @ Errno::EACCES) => errno,
        done => return done.map_err(known),
    };
    match call() {
        Ok(0) | Err(Errno::EPIPE) => Err(CallError {
            errno: first,
            refused: false,
        }),
        done => done.map_err(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an attempt at a call with these results. Returns its result, and the number of
    /// calls.
    fn attempted(results: &[Result<usize, Errno>]) -> (Result<usize, CallError>, usize) {
        let mut calls = 0;
        let done = attempt(|| {
            calls += 1;
            results[calls - 1]
        });
        (done, calls)
    }

    #[test]
    fn an_error_that_comes_once_is_no_refusal() {
        let failed = |errno, refused| Err(CallError { errno, refused });
        let denied = Err(Errno::EACCES);
        for next in [Ok(0), Err(Errno::EPIPE)] {
            let told = failed(Errno::EACCES, false);
            assert_eq!(attempted(&[denied, next]), (told, 2));
        }
        let refused = failed(Errno::EACCES, true);
        assert_eq!(attempted(&[denied, denied]), (refused, 2));
        assert_eq!(attempted(&[denied, Ok(3)]), (Ok(3), 2));
        let blocked = failed(Errno::EAGAIN, false);
        assert_eq!(attempted(&[denied, Err(Errno::EAGAIN)]), (blocked, 2));
        for errno in [Errno::EPERM, Errno::ENOSYS] {
            assert_eq!(attempted(&[Err(errno)]), (failed(errno, true), 1));
        }
        assert_eq!(attempted(&[Ok(0)]), (Ok(0), 1));
        let reset = failed(Errno::ECONNRESET, false);
        assert_eq!(attempted(&[Err(Errno::ECONNRESET)]), (reset, 1));
    }
}
