//! Sockets in the caller's event loop.

use std::io::Write;
use std::os::fd::AsFd;

use cordboard::DataPath::{ReadWrite, Splice};
use cordboard::Transfer;

use super::{Trouble, silent};
use crate::common::{self, is_due, only, wait, watchdog};

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
                while is_due(&stepping) {
                    assert!(stepping.step().is_none());
                    steps += 1;
                    assert!(steps < 50, "{trouble:?} {path}: {steps} steps");
                }
                assert_eq!(stepping.progress().written, round * 5);
                peer.write_all(b"hello").unwrap();
                while stepping.progress().written < (round + 1) * 5 {
                    wait(&stepping);
                    assert!(stepping.step().is_none());
                }
            }
        }
    }
}
