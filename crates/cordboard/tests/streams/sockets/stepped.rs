//! Sockets in the caller's event loop.

use std::io::Write;
use std::os::fd::AsFd;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::Transfer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Trouble, silent};
use crate::common::{self, only, watchdog};

/// An entry in the error queue causes a few steps, and not all the time.
#[test]
fn an_event_loop_with_something_in_an_error_queue() {
    let _dog = watchdog("an_event_loop_with_something_in_an_error_queue");
    for trouble in [Trouble::Timestamps, Trouble::Zerocopy] {
        for path in common::forcible(&[Splice, ReadWrite]) {
            let (from, mut peer) = silent(trouble);
            let (_end, sink) = std::io::pipe().unwrap();
            let transfer = Transfer::new(from.as_fd(), sink.as_fd(), only(&[path])).unwrap();
            let mut stepping = transfer.stepping().unwrap();
            for round in 0..10 {
                let mut steps = 0;
                loop {
                    let mut fds = [PollFd::new(&stepping, PollFlags::IN)];
                    let now = Timespec::default();
                    if poll(&mut fds, Some(&now)).unwrap() == 0 {
                        break;
                    }
                    assert!(stepping.step().is_none());
                    steps += 1;
                    assert!(steps < 50, "{trouble:?} {path}: {steps} steps");
                }
                assert_eq!(stepping.progress().written, round * 5);
                peer.write_all(b"hello").unwrap();
                while stepping.progress().written < (round + 1) * 5 {
                    let mut fds = [PollFd::new(&stepping, PollFlags::IN)];
                    poll(&mut fds, None).unwrap();
                    assert!(stepping.step().is_none());
                }
            }
        }
    }
}
