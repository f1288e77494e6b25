//! Tests of what a transfer that measures stores for later ones.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use testkit::file::file_with;

use super::Transfer;
use super::tuning_tests::request;

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
