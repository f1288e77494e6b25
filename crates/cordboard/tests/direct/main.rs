//! Direct I/O, by `io_uring(7)` if the kernel has it.

mod cases;
#[path = "../common/mod.rs"]
mod common;

/// The engine of this program, to be called before any other function of the library.
fn engine() -> &'static str {
    "io_uring"
}
