//! Runs of fan-outs, readers of their sinks, and checks of their accounts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use cordboard::fan_out::{FanOutOutcome, SinkReport};
use cordboard::{FanOut, Request};

use crate::common::{content_of, handed_back};

/// Prepares a fan-out.
pub fn fan<'a>(source: &'a impl AsFd, sinks: &'a [OwnedFd]) -> FanOut<'a> {
    request(source, sinks, Request::default())
}

/// Prepares a fan-out of this request.
pub fn request<'a>(source: &'a impl AsFd, sinks: &'a [OwnedFd], request: Request) -> FanOut<'a> {
    let sinks: Vec<BorrowedFd<'_>> = sinks.iter().map(AsFd::as_fd).collect();
    FanOut::new(source.as_fd(), &sinks, request).unwrap_or_else(|refused| panic!("{refused}"))
}

/// Makes pipes: the read ends, and the write ends.
pub fn pipes(count: usize) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    let pipe = |_| {
        let (reader, writer) = std::io::pipe().unwrap();
        (OwnedFd::from(reader), OwnedFd::from(writer))
    };
    (0..count).map(pipe).unzip()
}

/// Reads each descriptor to its end, in a thread of its own.
pub fn read_all(readers: Vec<OwnedFd>) -> Vec<JoinHandle<Vec<u8>>> {
    (readers.into_iter())
        .map(|reader| std::thread::spawn(move || content_of(reader)))
        .collect()
}

/// Returns what the threads have read.
pub fn joined(threads: Vec<JoinHandle<Vec<u8>>>) -> Vec<Vec<u8>> {
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

/// Checks the account of each sink, and that the bytes handed back are as many as
/// reported. Returns the sinks with their stranded bytes.
pub fn audit(outcome: FanOutOutcome) -> Vec<(SinkReport, Vec<u8>)> {
    let source = &outcome.source;
    assert_eq!(source.read, source.written + source.stranded, "{source:?}");
    assert_eq!(outcome.read, source.written);
    // No byte is in no account.
    let most = outcome.sinks.iter().map(|sink| sink.read).max();
    assert_eq!(Some(outcome.read), most, "{outcome:?}");
    let check = |mut sink: SinkReport| {
        let accounted = sink.written + sink.dropped + sink.stranded;
        assert_eq!(sink.read, accounted, "{sink:?}");
        assert!(sink.read <= outcome.read, "{sink:?}");
        let back = handed_back(sink.unwritten.take());
        assert_eq!(back.len() as u64, sink.stranded, "{sink:?}");
        (sink, back)
    };
    outcome.sinks.into_iter().map(check).collect()
}
