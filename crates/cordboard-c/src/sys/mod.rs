//! The calls that have no safe wrapper, and what C's pointers point to: with
//! `calls`, the only rooms with `unsafe`, each block with its SAFETY line.

mod cancel;
mod descriptor;
mod memory;
mod signal;

pub(crate) use cancel::NotCancelled;
pub(crate) use descriptor::{Owned, flags, lend, owner, set_flags, set_signal, signal};
pub(crate) use memory::{Opaque, check, give, give_text, room, take, text};
pub(crate) use signal::{Owner, Target, notify, set_errno};

use cordboard::Errno;

/// The errno of the call that just failed.
fn last() -> Errno {
    Errno::from_raw(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// A call's result, or the errno it left.
fn done(result: libc::c_int) -> Result<libc::c_int, Errno> {
    match result {
        -1 => Err(last()),
        value => Ok(value),
    }
}
