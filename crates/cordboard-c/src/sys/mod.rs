//! System calls without a safe wrapper, and access to the caller's memory. Only
//! this module and `calls` contain `unsafe`, each block with its SAFETY line.

mod cancel;
mod descriptor;
mod errno;
mod memory;
mod signal;

pub(crate) use cancel::NotCancelled;
pub(crate) use descriptor::{
    OwnerEx, flags, lend, owner, set_async, set_flags, set_signal, signal,
};
pub(crate) use errno::set_errno;
pub(crate) use memory::{
    UserData, buffer, bytes, check_size, read_struct, string, write_string, write_struct,
};
pub(crate) use signal::{Owner, Target, notify};
