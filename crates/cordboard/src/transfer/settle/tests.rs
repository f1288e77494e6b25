//! A settlement in turns.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::{Settled, Settlement};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{DataPath, Request, Switches};
use crate::stage::{Fault, Finished, Passed, Transform};
use crate::transfer::wait::{Clock, Interest, Poll, Waiter, Wakeup};
use crate::transfer::{Transfer, Turn};
use testkit::pattern::noise;

/// A waiter that only polls.
struct NeverWaits(Poll);

impl Clock for NeverWaits {
    fn now(&mut self) -> Duration {
        self.0.now()
    }
}

impl Waiter for NeverWaits {
    fn wait(
        &mut self,
        interest: &Interest<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, Errno> {
        assert_eq!(timeout, Some(Duration::ZERO), "it waits");
        self.0.wait(interest, timeout)
    }
}

/// Blocks in flight complete in turns, and the runner waits for them.
#[test]
fn blocks_complete_between_turns() {
    if let Some(missing) = testkit::SourceKind::Direct.unavailable() {
        return testkit::skip::here(missing);
    }
    let data = noise(48 << 20);
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&data).unwrap();
    source.sync_all().unwrap();
    std::io::Seek::rewind(&mut source).unwrap();
    let mut sink = tempfile::tempfile().unwrap();
    let request = Request {
        switches: Some(Switches::only(&[DataPath::Direct])),
        sync: true,
        ..Request::default()
    };
    let Ok(mut transfer) = Transfer::new(source.as_fd(), sink.as_fd(), request) else {
        return testkit::skip::here("no direct I/O here");
    };
    transfer.flow.set_may_sleep(false);
    loop {
        match transfer.step() {
            Turn::Moved(_) => {}
            Turn::Pending => break,
            // In memory a block ends in the call that starts it.
            Turn::Done(Ended::Eof) => return testkit::skip::here("no block is in flight here"),
            turn => panic!("{turn:?}"),
        }
    }
    assert_ne!(transfer.pending(), (0, 0));
    let mut waiter = NeverWaits(Poll::new());
    // Not cancelled, so that it is synced too.
    let turn = Turn::Done(Ended::Idle);
    let mut settlement = Settlement::new(transfer, &turn, Duration::ZERO);
    let mut turns = 0;
    loop {
        turns += 1;
        match settlement.advance(&mut waiter, false) {
            Settled::Again => {}
            Settled::Wait(wait) => {
                let interest = wait.interest(settlement.transfer());
                let timeout = wait.timeout.or(Some(Duration::from_secs(60)));
                Poll::new().wait(&interest, timeout).unwrap();
            }
            Settled::Done => break,
        }
    }
    assert!(turns >= 4, "reap, drain, close, sync: {turns}");
    assert_eq!(settlement.advance(&mut waiter, false), Settled::Done);
    let (outcome, open) = settlement.finish(&mut waiter);
    open.close(false).unwrap();
    let report = outcome.report;
    assert_eq!((report.ended, report.read), (Ended::Idle, report.written));
    let mut copy = Vec::new();
    std::io::Seek::rewind(&mut sink).unwrap();
    sink.read_to_end(&mut copy).unwrap();
    assert_eq!(copy.len() as u64, report.written);
    assert!(copy[..] == data[..copy.len()]);
}

/// A socket returns its error to one call: a transfer that is cancelled before the step that
/// would return it reports it at the end.
#[test]
fn an_error_behind_a_datagram_is_reported_by_a_cancelled_transfer() {
    let (peer, source) = UnixDatagram::pair().unwrap();
    let (mut reader, sink) = std::io::pipe().unwrap();
    peer.send(b"one").unwrap();
    let request = Request {
        switches: Some(Switches::only(&[DataPath::Datagram])),
        ..Request::default()
    };
    let mut report = None;
    let body = || {
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        transfer.flow.set_may_sleep(false);
        assert_eq!(transfer.step(), Turn::Moved(3));
        let turn = Turn::Done(Ended::Cancelled);
        let outcome = transfer.settle(&turn, &mut Poll::new(), Duration::ZERO);
        report = Some(outcome.report);
    };
    // The second call finds the error.
    let refuse = |count| (count == 1).then_some(libc::ECONNRESET);
    if testkit::midst::refusing(&[libc::SYS_recvmsg], body, refuse).is_none() {
        return testkit::skip::report("an_error_behind_a_datagram", "calls cannot be held here");
    }
    let report = report.unwrap();
    assert_eq!(report.ended, Ended::Error, "{report:?}");
    assert_eq!(report.failed, Some(Side::Source));
    assert_eq!(report.errno, Some(Errno::ECONNRESET));
    assert_eq!((report.read, report.written), (3, 3));
    let mut got = [0; 8];
    assert_eq!(reader.read(&mut got).unwrap(), 3);
}

/// The same if a sink without room keeps the output of a stage before the error.
#[test]
#[cfg(feature = "zstd")]
fn an_error_behind_a_stage_is_reported_by_a_cancelled_transfer() {
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::os::unix::net::UnixStream;
    let (mut peer, source) = UnixStream::pair().unwrap();
    let (_reader, sink) = pipe_with(PipeFlags::NONBLOCK).unwrap();
    while rustix::io::write(&sink, &[0; 4096]).is_ok() {}
    peer.write_all(b"one").unwrap();
    let mut report = None;
    let body = || {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
        let mut transfer = transfer.stage(crate::Stage::zstd(1).unwrap()).unwrap();
        transfer.flow.set_may_sleep(false);
        while matches!(transfer.step(), Turn::Moved(_)) {}
        assert_eq!(transfer.step(), Turn::Blocked(Side::Sink));
        let turn = Turn::Done(Ended::Cancelled);
        let outcome = transfer.settle(&turn, &mut Poll::new(), Duration::ZERO);
        report = Some(outcome.report);
    };
    let refuse = |count| (count == 1).then_some(libc::ECONNRESET);
    if testkit::midst::refusing(&[libc::SYS_recvfrom], body, refuse).is_none() {
        return testkit::skip::report("an_error_behind_a_stage", "calls cannot be held here");
    }
    let report = report.unwrap();
    assert_eq!(report.ended, Ended::Error, "{report:?}");
    assert_eq!(report.failed, Some(Side::Source));
    assert_eq!(report.errno, Some(Errno::ECONNRESET));
}

/// Makes 4 MiB of each byte.
struct Expand(usize);

impl Transform for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let made = output.len().min(self.0);
        self.0 -= made;
        let taken = usize::from(self.0 == 0).min(input.len());
        Ok(Passed { taken, made })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        Ok(Finished {
            made: 0,
            done: true,
        })
    }

    fn expands(&self) -> bool {
        true
    }
}

/// The output of a stage that expands its input is not handed back without a limit.
#[test]
fn the_bytes_to_hand_back_are_limited() {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (_reader, sink) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
    feed.write_all(b"x").unwrap();
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
    let stage = crate::Stage::transforming(Expand(4 << 20));
    let mut transfer = transfer.stage(stage).unwrap();
    transfer.flow.source.ready.marked = true;
    while transfer.step() != Turn::Blocked(Side::Sink) {}
    let turn = Turn::Done(Ended::Cancelled);
    let outcome = transfer.settle(&turn, &mut Poll::new(), Duration::ZERO);
    let (report, stages) = (&outcome.report, &outcome.report.stages);
    let failed = (report.ended, report.failed, report.errno);
    assert_eq!(
        failed,
        (Ended::Error, None, Some(Errno::ENOMEM)),
        "{report:?}"
    );
    assert!((1..=1 << 20).contains(&report.stranded), "{report:?}");
    assert!(
        report.written + report.stranded < stages[0].bytes_out,
        "{report:?}"
    );
}
