//! How such a transfer closes its descriptors.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{go, to_the_end};
use crate::common::{self, any, is_due, watchdog};
use cordboard::{Ended, Stepping, Transfer};

/// The numbers of the transfer refer to other files in such a thread.
#[test]
fn a_thread_with_descriptors_of_its_own_closes_none_of_them() {
    use std::os::fd::AsRawFd;
    use testkit::child;
    let name = "a_thread_with_descriptors_of_its_own_closes_none_of_them";
    let _dog = watchdog(name);
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), any()).unwrap();
    let mut stepping = transfer.stepping().unwrap();
    assert!(go(&mut stepping).is_none());
    let origin = cordboard::Origin::here();
    let elsewhere = std::thread::spawn(move || {
        child::own_descriptors();
        if origin.has_descriptors() {
            return testkit::skip::report(name, "no kcmp(2) here");
        }
        let own = tempfile::tempfile().unwrap();
        let number = stepping.as_fd().as_raw_fd();
        child::replace(stepping.as_fd(), own.as_fd());
        drop(stepping);
        assert_eq!(child::inode(number), child::inode(own.as_raw_fd()));
    });
    elsewhere.join().unwrap();
}

/// Fills a connection with SO_LINGER whose peer reads nothing. The close of its last descriptor
/// waits for the peer. Returns the transfer, and the peer.
fn lingering() -> (Stepping<'static>, std::net::TcpStream) {
    let (sink, peer) = common::tcp_pair();
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&sink, hour).unwrap();
    let source = File::open("/dev/zero").unwrap();
    let transfer = Transfer::duplicating(source.as_fd(), sink.as_fd(), any()).unwrap();
    let mut stepping = transfer.stepping().unwrap();
    assert!(go(&mut stepping).is_none());
    (stepping, peer)
}

#[test]
fn a_close_that_waits_for_the_peer_is_no_step() {
    let _dog = watchdog("a_close_that_waits_for_the_peer_is_no_step");
    let (mut stepping, mut peer) = lingering();
    stepping.cancel();
    assert!(go(&mut stepping).is_none(), "the peer has read nothing");
    assert!(stepping.step().is_none(), "a step too many does nothing");
    stepping.cancel();
    assert!(!is_due(&stepping), "it is cancelled already");
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    let outcome = to_the_end(&mut stepping).0;
    assert_eq!(outcome.report.ended, Ended::Cancelled);
    assert_eq!(outcome.report.written, all.len() as u64);
    assert!(is_due(&stepping), "it stays readable");
    assert!(stepping.step().is_none(), "the outcome is returned once");
}

#[test]
fn a_drop_does_not_wait_for_the_peer() {
    let _dog = watchdog("a_drop_does_not_wait_for_the_peer");
    let (stepping, mut peer) = lingering();
    let written = stepping.progress().written;
    drop(stepping);
    let (mut settles, mut closes) = (lingering(), lingering());
    for (stepping, steps) in [(&mut settles.0, 1), (&mut closes.0, 50)] {
        stepping.cancel();
        (0..steps).for_each(|_| assert!(stepping.step().is_none()));
    }
    drop((settles.0, closes.0));
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert!(all.len() as u64 >= written);
    for mut peer in [settles.1, closes.1] {
        peer.read_to_end(&mut all).unwrap();
    }
}
