//! A host that closes all descriptors while the kernel, or a thread, executes a
//! block of a direct copy. The descriptor that would report the end of the block
//! is closed.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::direct;
use crate::common::{self, MIB, pattern, watchdog};
use cordboard::{Errno, Transfer};
use testkit::fuse::{Served, with_file};
use testkit::{child, locked};

/// Waits until the thread sleeps.
fn sleeps(name: &str) -> bool {
    let tasks = locked::threads(name);
    !tasks.is_empty() && tasks.iter().all(|task| locked::polls(task))
}

#[test]
fn who_waits_for_a_block_finds_out_that_all_is_closed() {
    let _dog = watchdog("who_waits_for_a_block_finds_out_that_all_is_closed");
    if !common::alone!() {
        return;
    }
    if crate::engine() == "io_uring" {
        let reason = "a read from FUSE blocks the call that submits it to io_uring";
        return testkit::skip::here(reason);
    }
    let data = pattern(4 * MIB);
    let silent = AtomicBool::new(false);
    let served = Served {
        holds: &data,
        claims: data.len() as u64,
        silent: Some(&silent),
        // Further calls of close are not checked.
        close: libc::ENOSYS,
        ..Served::default()
    };
    let tried = with_file(served, |path| {
        drop(File::open(path).unwrap());
        silent.store(true, Ordering::Relaxed);
        let (mut done, told) = std::io::pipe().unwrap();
        std::thread::scope(|scope| {
            // The child cannot end until its read is answered.
            scope.spawn(|| {
                let _ = done.read(&mut [0]);
                silent.store(false, Ordering::Relaxed);
            });
            assert!(child::in_a_child(|| {
                let (source, sink) = (File::open(path).unwrap(), tempfile::tempfile().unwrap());
                let transfer = Transfer::owning(source.into(), sink.into(), direct()).unwrap();
                let running = transfer.start().unwrap();
                while !sleeps("cordboard-disk") {
                    std::thread::yield_now();
                }
                // SAFETY: standard input, which nothing in this process uses.
                let input = unsafe { std::os::fd::BorrowedFd::borrow_raw(0) };
                child::replace(input, told.as_fd());
                child::close_from(3);
                let report = running.wait().report;
                let written = rustix::io::write(input, b"x");
                (report.errno, written) == (Some(Errno::EBADF), Ok(1))
            }));
        });
    });
    if !tried {
        testkit::skip::here("FUSE needs root");
    }
}
