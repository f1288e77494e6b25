//! Cordboard from C: the paper's call, `cord_splice`, and handles of
//! asynchronous transfers.
//!
//! `include/cordboard.h` is generated from this crate's types and doc comments;
//! `docs/c.md` is the introduction. Each call checks its arguments. A call that
//! fails sets `errno` and stores a message for `cord_error`.
//!
//! A module uses only those before it:
//!
//! 1. `types`: the structures and constants of C; `error`: errno and message
//! 2. `sys`: system calls, the caller's memory; `process`: state per process; `patience`: waits
//!    for a descriptor
//! 3. `checked_fd`: descriptors that the program may have closed
//! 4. `fasync`: FASYNC and the signal at the end
//! 5. `convert`: structures of C to and from the library's
//! 6. `outcome`: report and stranded bytes; `failed`: those of a failed call;
//!    `record_reader`: the records of a control descriptor
//! 7. `stepped`: transfers that `cord_step` drives; `table`: handles
//! 8. `guard`: the boundary, which no panic crosses
//! 9. `calls`: the functions of the header

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod checked_fd;
mod convert;
mod error;
mod failed;
mod fasync;
mod guard;
mod outcome;
mod patience;
mod process;
mod record_reader;
mod stepped;
#[allow(unsafe_code)]
mod sys;
mod table;
pub mod types;
