//! Direct I/O by threads, which the library uses if `io_uring(7)` is refused: the
//! cases of `direct`. This program is on its own because it sets
//! `CORDBOARD_ENGINE=epoll`, which the library reads once per process.

#[path = "../direct/cases/mod.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

/// The engine of this program, to be called before any other function of the library.
fn engine() -> &'static str {
    static SET: std::sync::Once = std::sync::Once::new();
    // SAFETY: every test begins here, and all other code reads the environment under
    // the standard library's lock.
    SET.call_once(|| unsafe { std::env::set_var("CORDBOARD_ENGINE", "epoll") });
    "epoll"
}
