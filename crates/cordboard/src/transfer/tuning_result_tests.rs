//! Tests of what a transfer that measures stores for later ones, and of when direct I/O measures.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use testkit::file::file_with;

use super::Transfer;
use super::tuning_tests::request;
use crate::request::{DataPath, Request, Switches, Tune};

/// Transfers from another file system do not begin with what was found.
#[test]
fn a_result_is_of_the_file_system_of_the_source() {
    let (sink, _peer) = UnixStream::pair().unwrap();
    let (pipe, _feed) = std::io::pipe().unwrap();
    let file = file_with(b"abc");
    let device_of = |source: &dyn AsFd| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request()).unwrap();
        transfer.key().device
    };
    let device = rustix::fs::fstat(&file).unwrap().st_dev;
    assert_eq!(device_of(&file), Some(device));
    assert_eq!(device_of(&pipe), None);
}

/// A request that chooses the path or the block also fixes the blocks of direct I/O.
#[test]
fn direct_io_is_not_measured_if_the_request_leaves_no_choice() {
    let (source, sink) = (file_with(b"abc"), file_with(b""));
    let adapts = |request: Request| {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        transfer.flow.options.tunes
    };
    assert!(adapts(request()));
    let switches = Some(Switches::all().without(DataPath::Clone));
    assert!(adapts(Request {
        switches,
        ..request()
    }));
    assert!(!adapts(Request {
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..request()
    }));
    assert!(!adapts(Request {
        block: NonZeroUsize::new(1 << 20),
        ..request()
    }));
    assert!(!adapts(Request {
        tune: Some(Tune::Off),
        ..request()
    }));
}
