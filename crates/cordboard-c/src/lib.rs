//! Cordboard from C: the paper's one call, `cord_splice`, and handles on
//! transfers that run by themselves.
//!
//! `include/cordboard.h` is made from this crate's types and doc comments;
//! `docs/c.md` is the page to read first. Each call checks what it is given,
//! sets `errno`, keeps words about the failure for `cord_error`, and lets no
//! panic across (`guard`). Handles are numbers that are looked up (`table`),
//! so that one that was closed is `EBADF` and not a crash.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod convert;
mod failed;
mod fasync;
mod guard;
mod kept;
mod outcome;
#[allow(unsafe_code)]
mod sys;
mod table;
pub mod types;
