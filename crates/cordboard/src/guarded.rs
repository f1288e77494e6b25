//! Calls of the host program's code: observers, stages, callbacks, wakers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `code`; `None` if it panics. Dropping the payload of a panic may panic
/// again (see `catch_unwind`): the second payload is leaked, as in threads of
/// the standard library.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_caught_too() {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(()));
            }
        }
        assert_eq!(guarded(|| 7), Some(7));
        let panics = || -> u8 { std::panic::resume_unwind(Box::new(Payload)) };
        assert_eq!(guarded(panics), None);
    }
}
