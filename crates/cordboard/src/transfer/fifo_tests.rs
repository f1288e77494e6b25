//! The check whether a FIFO has a writer, with time that passes only in waits.

use std::os::fd::AsFd;
use std::time::Duration;

use super::wait::{Clock, Interest, Waiter, Wakeup};
use super::{Transfer, Turn, drive};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::Request;

/// Time passes, and another thread answers, only in waits.
struct Late {
    now: Duration,
    waits: u32,
    answer: Option<std::sync::mpsc::Sender<Option<bool>>>,
}

impl Clock for Late {
    fn now(&mut self) -> Duration {
        self.now
    }
}

impl Waiter for Late {
    fn wait(&mut self, _: &Interest<'_>, timeout: Option<Duration>) -> Result<Wakeup, Errno> {
        let timeout = timeout.expect("a timeout, to check for the answer again");
        self.now += timeout;
        // The first check has a timeout of zero.
        self.waits += u32::from(!timeout.is_zero());
        if self.waits == 2
            && let Some(answer) = self.answer.take()
        {
            answer.send(Some(true)).unwrap();
        }
        Ok(Wakeup::default())
    }
}

/// The answer whether a FIFO has a writer comes late, because the thread of the query has
/// started late.
#[test]
fn a_late_answer_ends_a_fifo_without_a_writer() {
    use super::{Next, Stepper};
    use crate::pipe::FifoCheck;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("fifo");
    mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let source = open(&name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let late = || {
        let request = Request {
            idle: Some(Duration::from_secs(3600)),
            ..Request::default()
        };
        let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let (answer, pending) = std::sync::mpsc::channel();
        transfer.fifo_check = FifoCheck::Pending(pending);
        let late = Late {
            now: Duration::from_secs(1000),
            waits: 0,
            answer: Some(answer),
        };
        (transfer, late)
    };
    let (transfer, mut waiter) = late();
    let outcome = drive::run(transfer, &mut waiter);
    assert_eq!(outcome.report.ended, Ended::Eof);
    assert_eq!(waiter.waits, 2);

    // As an engine waits.
    let (mut transfer, mut waiter) = late();
    let mut stepper = Stepper::begin(waiter.now);
    let first = stepper.poll_source_first(&mut transfer, &mut waiter);
    let Some(Next::Wait(wait)) = first else {
        panic!("{first:?}");
    };
    assert!(wait.timeout.unwrap() < Duration::from_secs(1));
    waiter.answer.take().unwrap().send(Some(true)).unwrap();
    let next = stepper.resume(&mut transfer, wait, Wakeup::default(), &mut waiter);
    assert_eq!(next, Next::Step);
    assert_eq!(stepper.poll_source_first(&mut transfer, &mut waiter), None);
    assert_eq!(transfer.step(), Turn::Done(Ended::Eof));
}

/// A step after the check may take nothing. The FIFO is then checked again, until it has had a
/// writer.
#[test]
fn a_fifo_is_checked_until_it_has_had_a_writer() {
    let name = "a_fifo_is_checked_until_it_has_had_a_writer";
    if testkit::needs::missing(name, &[testkit::needs::Need::Vmsplice]) {
        return;
    }
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("fifo");
    mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let source = open(&name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let sink = tempfile::tempfile().unwrap();
    let mut transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
    assert!(transfer.fifo_has_no_writer() && transfer.fifo_has_no_writer());
    let writer = open(&name, OFlags::WRONLY, Mode::empty()).unwrap();
    assert!(!transfer.fifo_has_no_writer());
    drop(writer);
    // `poll(2)` shows it now.
    assert!(!transfer.fifo_has_no_writer());
}
