//! Transfers that the caller's event loop drives. If a step waited, most of these tests
//! would hang: one thread feeds the source and reads the sink.

mod closes;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{
    self, any, content, file_with, handed_back, is_due, only, pattern, wait, watchdog,
};
use cordboard::stage::{Fault, Finished, Inspect, Passed, Transform};
use cordboard::{
    Control, DataPath, Ended, Errno, Outcome, Request, Side, Stage, Stepping, Transfer,
};
use rustix::event::Timespec;

const MIB: usize = 1 << 20;

fn stepping<'a>(source: &'a impl AsFd, sink: &'a impl AsFd, request: Request) -> Stepping<'a> {
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
    transfer.stepping().unwrap()
}

/// Takes steps as long as the descriptor says that one is possible.
fn go(stepping: &mut Stepping<'_>) -> Option<Outcome> {
    while is_due(stepping) {
        let outcome = stepping.step();
        if outcome.is_some() {
            return outcome;
        }
    }
    None
}

/// Waits and takes steps until the end. Returns the number of steps too.
fn to_the_end(stepping: &mut Stepping<'_>) -> (Outcome, usize) {
    let mut steps = 0;
    loop {
        wait(stepping);
        steps += 1;
        if let Some(outcome) = stepping.step() {
            return (outcome, steps);
        }
    }
}

#[test]
fn a_transfer_waits_in_the_event_loop_alone() {
    let _dog = watchdog("a_transfer_waits_in_the_event_loop_alone");
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut drain, sink) = std::io::pipe().unwrap();
    let mut stepping = stepping(&source, &sink, any());
    let mut got = vec![0; 5];
    for _ in 0..3 {
        assert!(go(&mut stepping).is_none());
        assert!(!is_due(&stepping), "the source is silent");
        assert!(stepping.step().is_none(), "a step too many does nothing");
        feed.write_all(b"bytes").unwrap();
        assert!(is_due(&stepping));
        assert!(go(&mut stepping).is_none());
        drain.read_exact(&mut got).unwrap();
        assert_eq!(got, b"bytes");
    }
    assert_eq!(stepping.progress().written, 15);
    drop(feed);
    let outcome = go(&mut stepping).expect("the source has ended");
    assert_eq!(
        (outcome.report.ended, outcome.report.written),
        (Ended::Eof, 15)
    );
    assert!(is_due(&stepping), "it stays readable");
    assert!(stepping.step().is_none(), "the outcome is returned once");
    assert_eq!(stepping.progress().written, 15);
}

/// A process that splices a silent socket into the source holds the lock of that pipe.
#[test]
fn an_empty_source_is_not_read_while_another_process_has_its_lock() {
    let name = "an_empty_source_is_not_read_while_another_process_has_its_lock";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = watchdog(name);
    let (source, mut feed) = std::io::pipe().unwrap();
    let from = source.try_clone().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    let mut stepping = stepping(&from, &sink, any());
    feed.write_all(b"bytes").unwrap();
    while stepping.progress().written < 5 {
        assert!(stepping.step().is_none());
    }
    let locked = testkit::locked::Locked::of(source, feed);
    assert!(go(&mut stepping).is_none());
    assert!(!is_due(&stepping));
    drop(locked.release());
    let outcome = to_the_end(&mut stepping).0;
    assert_eq!(outcome.report.written, 6);
}

/// A wait for the sink says nothing about the source, which another process has emptied
/// meanwhile.
#[test]
fn a_source_is_polled_after_a_wait_for_the_sink() {
    let name = "a_source_is_polled_after_a_wait_for_the_sink";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = watchdog(name);
    let (mut source, mut feed) = std::io::pipe().unwrap();
    let from = source.try_clone().unwrap();
    let (mut reader, mut sink) = std::io::pipe().unwrap();
    let mut full = vec![0; rustix::pipe::fcntl_setpipe_size(&sink, 4096).unwrap()];
    sink.write_all(&full).unwrap();
    feed.write_all(b"bytes").unwrap();
    let mut stepping = stepping(&from, &sink, any());
    assert!(go(&mut stepping).is_none());
    assert_eq!(stepping.progress().read, 0, "it waits for the sink");
    source.read_exact(&mut [0; 5]).unwrap();
    let locked = testkit::locked::Locked::of(source, feed);
    reader.read_exact(&mut full).unwrap();
    assert!(go(&mut stepping).is_none());
    assert!(!is_due(&stepping), "it waits for the source");
    drop(locked.release());
    while stepping.progress().written < 1 {
        wait(&stepping);
        assert!(stepping.step().is_none());
    }
    reader.read_exact(&mut [0]).unwrap();
    let outcome = to_the_end(&mut stepping).0;
    assert_eq!(outcome.report.written, 1);
}

#[test]
fn a_full_sink_is_waited_for() {
    let _dog = watchdog("a_full_sink_is_waited_for");
    let data = pattern(4 * MIB);
    let source = file_with(&data);
    let (sink, mut drain) = std::os::unix::net::UnixStream::pair().unwrap();
    // The blocking socket of the caller.
    let mut stepping = stepping(&source, &sink, any());
    let (mut got, mut part) = (Vec::new(), vec![0; 65_536]);
    let outcome = loop {
        if let Some(outcome) = go(&mut stepping) {
            break outcome;
        }
        assert!(!is_due(&stepping), "the sink is full");
        let n = drain.read(&mut part).unwrap();
        got.extend(&part[..n]);
    };
    drop(stepping);
    drop(sink);
    drain.read_to_end(&mut got).unwrap();
    assert!(got == data);
    assert_eq!(outcome.report.written, data.len() as u64);
}

/// One thread drives all of them, and few steps have no effect.
#[test]
fn hundreds_share_one_thread() {
    use rustix::event::epoll;
    let _dog = watchdog("hundreds_share_one_thread");
    const COUNT: usize = 200;
    let pairs: Vec<_> = (0..COUNT)
        .map(|_| (std::io::pipe().unwrap(), std::io::pipe().unwrap()))
        .collect();
    let mut all: Vec<_> = pairs
        .iter()
        .map(|((source, _), (_, sink))| stepping(source, sink, any()))
        .collect();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for (index, one) in all.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&epoll, one, data, epoll::EventFlags::IN).unwrap();
    }
    let steps = std::cell::Cell::new(0);
    let turn = |all: &mut [Stepping<'_>]| {
        let mut room = Vec::with_capacity(COUNT);
        let zero = Timespec::default();
        epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut room),
            Some(&zero),
        )
        .unwrap();
        for event in &room {
            assert!(all[event.data.u64() as usize].step().is_none());
            steps.set(steps.get() + 1);
        }
        !room.is_empty()
    };
    while turn(&mut all) {}
    let begun = steps.get();
    for (index, ((_, feed), (drain, _))) in pairs.iter().enumerate() {
        rustix::io::write(feed, &[index as u8; 16]).unwrap();
        while turn(&mut all) {}
        let mut got = [0; 17];
        assert_eq!(rustix::io::read(drain, &mut got), Ok(16));
        assert_eq!(got[..16], [index as u8; 16]);
    }
    // For a message: the step that moves it, and the one that finds the pipe empty.
    let taken = steps.get() - begun;
    assert!(taken <= 4 * COUNT, "{taken}");
}

#[test]
fn a_pause_and_a_schedule_are_waited_for() {
    let _dog = watchdog("a_pause_and_a_schedule_are_waited_for");
    let data = pattern(300_000);
    let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
    let control = Control::new().unwrap();
    control.pause();
    control.set_schedule(cordboard::Schedule::rate(100 << 20));
    let transfer = Transfer::new(source.as_fd(), sink.as_fd(), any()).unwrap();
    let mut stepping = transfer.control(&control).stepping().unwrap();
    assert!(go(&mut stepping).is_none());
    assert!(!is_due(&stepping), "it is paused");
    assert_eq!(stepping.progress().written, 0);
    control.resume();
    assert!(is_due(&stepping), "it has been resumed");
    let (outcome, steps) = to_the_end(&mut stepping);
    assert!(steps < 1000, "{steps}");
    assert_eq!(outcome.report.ended, Ended::Eof);
    assert!(content(&sink) == data);
}

#[test]
fn silence_ends_it_at_the_idle_limit() {
    let _dog = watchdog("silence_ends_it_at_the_idle_limit");
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    feed.write_all(b"abc").unwrap();
    let request = Request {
        idle: Some(Duration::from_millis(2)),
        ..any()
    };
    let (outcome, steps) = to_the_end(&mut stepping(&source, &sink, request));
    let report = outcome.report;
    assert_eq!(
        (report.ended, report.written),
        (Ended::Idle, 3),
        "{report:?}"
    );
    assert!(steps < 20, "{steps}");
}

#[test]
fn a_cancelled_one_hands_back_what_it_holds() {
    let _dog = watchdog("a_cancelled_one_hands_back_what_it_holds");
    let data = pattern(MIB);
    for path in common::forcible(&[DataPath::Splice, DataPath::ReadWrite]) {
        let (source, mut feed) = std::os::unix::net::UnixStream::pair().unwrap();
        feed.set_nonblocking(true).unwrap();
        let fed = feed.write(&data).unwrap();
        let (sink, mut drain) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stepping = stepping(&source, &sink, only(&[path]));
        // The sink becomes full, or the source empty.
        while go(&mut stepping).is_none() && is_due(&stepping) {}
        stepping.cancel();
        assert!(is_due(&stepping));
        let outcome = go(&mut stepping).unwrap();
        let report = &outcome.report;
        assert_eq!(report.ended, Ended::Cancelled, "{report:?}");
        assert_eq!(report.read, report.written + report.stranded, "{report:?}");
        assert_eq!(report.path, [path]);
        drop(stepping);
        drop((sink, feed));
        let mut got = Vec::new();
        drain.read_to_end(&mut got).unwrap();
        assert_eq!(got.len() as u64, report.written);
        got.extend(handed_back(outcome.stranded));
        assert_eq!(got.len() as u64, report.read);
        common::content_of(source)
            .iter()
            .for_each(|byte| got.push(*byte));
        assert!(got == data[..fed]);
    }
}

#[test]
fn a_dropped_one_gives_back_what_it_has_not_written() {
    let _dog = watchdog("a_dropped_one_gives_back_what_it_has_not_written");
    let data = pattern(4 * MIB);
    for path in common::forcible(&[DataPath::Splice, DataPath::ReadWrite]) {
        let source = file_with(&data);
        let (sink, mut drain) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut one = stepping(&source, &sink, only(&[path]));
        assert!(go(&mut one).is_none());
        drop(one);
        drop(sink);
        let mut got = Vec::new();
        drain.read_to_end(&mut got).unwrap();
        assert!(!got.is_empty() && got == data[..got.len()], "{path}");
        assert_eq!(common::position(&source), got.len() as u64, "{path}");
    }
}

#[test]
fn files_are_copied_and_synced() {
    let _dog = watchdog("files_are_copied_and_synced");
    let data = pattern(3 * MIB + 5);
    for paths in [DataPath::ALL, &[DataPath::Direct], &[DataPath::ReadWrite]] {
        let (source, sink) = (file_with(&data), tempfile::tempfile().unwrap());
        let request = Request {
            sync: true,
            ..only(paths)
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let (outcome, _) = to_the_end(&mut transfer.stepping().unwrap());
        let report = outcome.report;
        let declined = report
            .declined
            .iter()
            .any(|one| one.path == DataPath::Direct);
        if paths == [DataPath::Direct] && report.path.is_empty() && declined {
            testkit::skip::report("direct I/O by steps", "no direct I/O on this file system");
            continue;
        }
        assert_eq!(report.ended, Ended::Eof, "{report:?}");
        assert_eq!(report.written, data.len() as u64);
        assert!(paths.len() > 1 || report.path == paths, "{report:?}");
        assert!(content(&sink) == data, "{report:?}");
    }
}

#[test]
fn a_sink_that_fails_is_named() {
    let _dog = watchdog("a_sink_that_fails_is_named");
    let (source, _feed) = std::io::pipe().unwrap();
    let (drain, sink) = std::io::pipe().unwrap();
    let mut stepping = stepping(&source, &sink, any());
    assert!(go(&mut stepping).is_none());
    // While it waits for the source.
    drop(drain);
    let report = go(&mut stepping).expect("the failure is noticed").report;
    assert_eq!(
        (report.ended, report.failed, report.errno),
        (Ended::Error, Some(Side::Sink), Some(Errno::EPIPE))
    );
}

/// Panics without the panic hook.
fn panic() -> ! {
    std::panic::resume_unwind(Box::new(()))
}

/// Panics when the report is made.
struct NoDigest;

impl Inspect for NoDigest {
    fn name(&self) -> &'static str {
        "no digest"
    }

    fn inspect(&mut self, _: &[u8]) {}

    fn digest(&self) -> Option<String> {
        panic()
    }
}

/// Passes on this many bytes, then panics.
struct Few(usize);

impl Transform for Few {
    fn name(&self) -> &'static str {
        "few"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let n = input.len().min(output.len()).min(self.0);
        if n == 0 {
            panic();
        }
        output[..n].copy_from_slice(&input[..n]);
        self.0 -= n;
        Ok(Passed { taken: n, made: n })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        panic()
    }
}

#[test]
fn a_stage_that_panics_ends_its_own_transfer() {
    let _dog = watchdog("a_stage_that_panics_ends_its_own_transfer");
    let data = pattern(100_000);
    let copy = |source: std::fs::File, stage: Stage| {
        let sink = tempfile::tempfile().unwrap();
        let to = sink.try_clone().unwrap();
        let transfer = Transfer::owning(source.into(), to.into(), any()).unwrap();
        let stepping = transfer.stage(stage).unwrap().stepping().unwrap();
        (stepping, sink)
    };
    // In the report: the counts are known.
    let (mut one, sink) = copy(file_with(&data), Stage::inspecting(NoDigest));
    let (outcome, _) = to_the_end(&mut one);
    let report = outcome.report;
    assert_eq!(
        (report.ended, report.failed, report.errno),
        (Ended::Error, None, Some(Errno::ECANCELED))
    );
    assert_eq!((report.read, report.written), (100_000, 100_000));
    assert!(content(&sink) == data);
    assert!(is_due(&one) && one.step().is_none());
    assert_eq!(one.progress().written, 100_000);
    // In a step, and in the settlement: the source is at the byte behind the last one taken.
    for few in [0, 1, 60_000, 100_000] {
        let source = file_with(&data);
        let (mut one, sink) = copy(source.try_clone().unwrap(), Stage::transforming(Few(few)));
        let outcome = to_the_end(&mut one).0;
        let report = &outcome.report;
        assert_eq!(
            (report.failed, report.errno),
            (None, Some(Errno::ECANCELED))
        );
        let mut got = content(&sink);
        assert_eq!(got.len() as u64, report.written, "{report:?}");
        got.extend(handed_back(outcome.stranded));
        assert!(got == data[..few], "{few}: {report:?}");
        assert_eq!(
            (report.read, common::position(&source)),
            (few as u64, few as u64)
        );
    }
    // Dropped before its first step, in the midst, and while it is settled.
    for steps in 0..4 {
        for stage in [Stage::inspecting(NoDigest), Stage::transforming(Few(5))] {
            let (mut one, _sink) = copy(file_with(&data), stage);
            for _ in 0..steps {
                if one.step().is_some() {
                    break;
                }
            }
            drop(one);
        }
    }
}
