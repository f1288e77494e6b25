//! Runs of fan-ins, their sources, and checks of their accounts.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::fan_in::{FanInOutcome, SourceReport};
use cordboard::{FanIn, Request};

use crate::common::{handed_back, tcp_pair};

/// Prepares a fan-in.
pub fn fan<'a>(sources: &'a [OwnedFd], sink: &'a impl AsFd) -> FanIn<'a> {
    request(sources, sink, Request::default())
}

/// Prepares a fan-in of this request.
pub fn request<'a>(sources: &'a [OwnedFd], sink: &'a impl AsFd, request: Request) -> FanIn<'a> {
    let sources: Vec<BorrowedFd<'_>> = sources.iter().map(AsFd::as_fd).collect();
    FanIn::new(&sources, sink.as_fd(), request).unwrap_or_else(|refused| panic!("{refused}"))
}

/// A pipe with these bytes, whose write end is returned.
pub fn pipe_with(bytes: &[u8]) -> (OwnedFd, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut writer = File::from(OwnedFd::from(writer));
    writer.write_all(bytes).unwrap();
    (reader.into(), writer)
}

/// Waits for a condition.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < testkit::watchdog::patience(), "{what}");
        std::thread::yield_now();
    }
}

/// Bytes of one source, which no other source has.
pub fn marked(source: usize, length: usize) -> Vec<u8> {
    let counter = (0..length).map(|n| (n.wrapping_mul(40_503) >> 8) as u8);
    counter
        .map(|n| (n & 0x1f) | ((source as u8) << 5))
        .collect()
}

/// Returns the bytes of one source in the sink.
pub fn of(source: usize, got: &[u8]) -> Vec<u8> {
    let its = got.iter().filter(|byte| usize::from(**byte >> 5) == source);
    its.copied().collect()
}

/// Checks the account of each source and the sums. Returns the sources with their
/// stranded bytes.
pub fn audit(outcome: FanInOutcome) -> Vec<(SourceReport, Vec<u8>)> {
    assert_eq!(
        outcome.read,
        outcome.written + outcome.stranded,
        "{outcome:?}"
    );
    let sum = |of: fn(&SourceReport) -> u64| outcome.sources.iter().map(of).sum::<u64>();
    assert_eq!(sum(|s| s.read), outcome.read);
    assert_eq!(sum(|s| s.written), outcome.written);
    assert_eq!(sum(|s| s.stranded), outcome.stranded);
    assert_eq!(outcome.sink.written, outcome.written);
    let check = |mut source: SourceReport| {
        assert_eq!(source.read, source.written + source.stranded, "{source:?}");
        let back = handed_back(source.unwritten.take());
        assert_eq!(back.len() as u64, source.stranded, "{source:?}");
        (source, back)
    };
    outcome.sources.into_iter().map(check).collect()
}

/// A connection that its peer has reset.
pub fn reset() -> OwnedFd {
    let (source, peer) = tcp_pair();
    abort(peer);
    source.into()
}

/// Resets a connection.
pub fn abort(peer: std::net::TcpStream) {
    rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
}
