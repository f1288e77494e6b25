//! Past the page cache, by threads: what `CORDBOARD_ENGINE=epoll` forces, and
//! what is used wherever `io_uring(7)` is refused.

#[path = "../direct/cases/mod.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

/// Before anything else of the library's is called.
fn engine() -> &'static str {
    static SET: std::sync::Once = std::sync::Once::new();
    // SAFETY: every test begins here, and what else reads the environment
    // does so through the standard library's lock.
    SET.call_once(|| unsafe { std::env::set_var("CORDBOARD_ENGINE", "epoll") });
    "epoll"
}
