//! Past the page cache, by `io_uring(7)` where the kernel has it.

mod cases;
#[path = "../common/mod.rs"]
mod common;

/// Before anything else of the library's is called.
fn engine() -> &'static str {
    "io_uring"
}
