//! Runs of buffered transfers, and checks of their accounts.

use std::io::Read;
use std::os::fd::AsFd;

use cordboard::buffer::BufferedOutcome;
use cordboard::{Buffered, Request};

/// Prepares a transfer.
pub fn buffered<'a>(source: &'a impl AsFd, sink: &'a impl AsFd, size: u64) -> Buffered<'a> {
    request(source, sink, size, Request::default())
}

/// Prepares a transfer of this request.
pub fn request<'a>(
    source: &'a impl AsFd,
    sink: &'a impl AsFd,
    size: u64,
    request: Request,
) -> Buffered<'a> {
    Buffered::new(source.as_fd(), sink.as_fd(), size, request)
        .unwrap_or_else(|refused| panic!("{refused}"))
}

/// Waits for a condition.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < testkit::watchdog::patience(), "{what}");
        std::thread::yield_now();
    }
}

/// Checks the account. Returns the bytes that were handed back.
pub fn audit(outcome: &mut BufferedOutcome) -> Vec<u8> {
    let accounted = outcome.written + outcome.stranded;
    assert_eq!(outcome.read, accounted, "{outcome:?}");
    assert!(outcome.most <= outcome.size, "{outcome:?}");
    assert_eq!(outcome.sink.written, outcome.written);
    let mut back = Vec::new();
    if let Some(unwritten) = &mut outcome.unwritten {
        assert_eq!(unwritten.len(), outcome.stranded);
        unwritten.read_to_end(&mut back).unwrap();
        assert!(unwritten.is_empty());
    }
    assert_eq!(back.len() as u64, outcome.stranded, "{outcome:?}");
    back
}
