//! A transfer on a thread of its own, which waits.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use cordboard::{Outcome, Transfer};
use testkit::locked::{polls, sleeps_in};

/// Runs a transfer on a thread, and calls a function while it sleeps in `poll(2)` or in a send.
pub fn asleep(transfer: Transfer<'static>, then: impl FnOnce()) -> Outcome {
    let (sender, number) = mpsc::channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            transfer.run()
        });
        let thread = number.recv().unwrap().as_raw_nonzero();
        let task = PathBuf::from(format!("/proc/self/task/{thread}"));
        while !(polls(&task) || sends(&task)) {
            assert!(!running.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        then();
        running.join().unwrap()
    })
}

/// Whether it sleeps in a call that writes to a socket.
fn sends(task: &Path) -> bool {
    let calls = [
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_splice,
        libc::SYS_sendfile,
        libc::SYS_write,
    ];
    sleeps_in(task, &calls)
}
