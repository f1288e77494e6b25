//! The boundary: a failure becomes errno and words; neither a panic nor a
//! thread's cancellation crosses.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cordboard::{Errno, Failure, Refusal};

use crate::sys;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) errno: Errno,
    words: String,
}

impl Problem {
    /// An errno with what is to be said of it.
    pub(crate) fn new(errno: Errno, words: impl Into<String>) -> Problem {
        Problem {
            errno,
            words: words.into(),
        }
    }
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Problem {
        Problem::new(errno, errno.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        Problem::new(refusal.errno(), refusal.to_string())
    }
}

impl From<&Failure> for Problem {
    fn from(failure: &Failure) -> Problem {
        // What ended early with bytes in hand, or ran out of paths, has none.
        let errno = failure.report.errno.unwrap_or(Errno::EOPNOTSUPP);
        Problem::new(errno, failure.to_string())
    }
}

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// Runs a call; on failure `errno` is set, its words are kept, and what C
/// knows as a failure is returned. A panic, which would be a mistake in this
/// library, is `ENOTRECOVERABLE`. The thread is not cancelled meanwhile.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> Result<T, Problem>) -> T {
    let _whole = sys::NotCancelled::begin();
    let call = AssertUnwindSafe(|| {
        // In a child of fork(2) the first call closes what it has inherited.
        crate::table::table();
        call()
    });
    let problem = match catch_unwind(call) {
        Ok(Ok(value)) => return value,
        Ok(Err(problem)) => problem,
        Err(_) => Problem::new(
            Errno::ENOTRECOVERABLE,
            "a mistake in cordboard itself: please report it with what it printed",
        ),
    };
    // A thread whose locals are gone already is at its very end.
    let _ = WORDS.try_with(|words| {
        let text = problem.words.replace('\0', " ");
        *words.borrow_mut() = CString::new(text).unwrap_or_default();
    });
    sys::set_errno(problem.errno);
    failed
}

/// The words of this thread's last failure, until its next one.
pub(crate) fn words() -> *const c_char {
    WORDS
        .try_with(|words| words.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn said() -> String {
        // SAFETY: never NULL, and nothing fails meanwhile.
        #[allow(unsafe_code)]
        let words = unsafe { CStr::from_ptr(words()) };
        words.to_str().unwrap().to_owned()
    }

    fn errno() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn failures_and_panics_are_errnos() {
        assert_eq!(guard(-1, || Ok(7)), 7);
        assert_eq!(said(), "");
        assert_eq!(guard(-1, || Err(Errno::EBADF.into())), -1);
        assert_eq!(
            (errno(), said()),
            (Some(libc::EBADF), "Bad file descriptor (EBADF)".into())
        );
        assert_eq!(
            guard(-1, || -> Result<i32, Problem> {
                panic!("a test's own panic")
            }),
            -1
        );
        assert_eq!(errno(), Some(libc::ENOTRECOVERABLE));
        assert!(said().contains("mistake"), "{}", said());
    }
}
