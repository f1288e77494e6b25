//! Slow sinks under each policy.

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::fan_out::{SinkEnded, SinkReport};
use cordboard::{Control, Ended, OnSlow, Request, Schedule};

use super::readers::{audit, fan, joined, pipes, read_all, request};
use crate::common::{MIB, content, content_of, file_with, pattern, watchdog};

/// Returns the words, which are their own numbers, and how many ranges of them are missing.
fn words(bytes: &[u8], total: usize) -> (HashSet<usize>, u64) {
    let all = bytes.chunks_exact(4).map(|word| word.try_into().unwrap());
    let all: Vec<usize> = all.map(|word| u32::from_ne_bytes(word) as usize).collect();
    let (mut next, mut gaps) = (0, 0);
    for word in all.iter().chain([&total]) {
        assert!(*word >= next, "{word} comes after {next}");
        gaps += u64::from(*word > next);
        next = word + 1;
    }
    (all.into_iter().collect(), gaps)
}

#[test]
fn a_sink_that_is_not_read_gets_gaps_under_drop() {
    let _dog = watchdog("a_sink_that_is_not_read_gets_gaps_under_drop");
    let total = 9 * MIB / 4;
    let data: Vec<u8> = (0..total as u32).flat_map(u32::to_ne_bytes).collect();
    let source = file_with(&data);
    let (mut readers, writers) = pipes(2);
    let slow = readers.remove(0);
    let fast = read_all(readers);
    let control = Control::new().unwrap();
    let running = fan(&source, &writers)
        .on_slow(OnSlow::Drop)
        .control(&control);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| running.run().unwrap());
        // The first sink never has room again: the end waits for it.
        while crate::common::position(&source) < data.len() as u64 {
            std::thread::yield_now();
        }
        control.cancel();
        running.join().unwrap()
    });
    drop(writers);
    assert!(outcome.read <= data.len() as u64);
    let read = outcome.read as usize / 4;
    let sinks = audit(outcome);
    let got = [content_of(slow), joined(fast).remove(0)];
    let both = got.into_iter().zip(&sinks).map(|(mut got, (sink, back))| {
        assert_eq!(got.len() as u64, sink.written);
        // Bytes after a gap may have been handed back.
        got.extend(back);
        let (words, gaps) = words(&got, read);
        assert_eq!(gaps, sink.gaps, "{sink:?}");
        words
    });
    let both: Vec<HashSet<usize>> = both.collect();
    assert!(sinks[0].0.dropped > 0, "{:?}", sinks[0]);
    // A reader that is not scheduled can miss a block too, which the other sink has then.
    let has_one = |word: &usize| both.iter().any(|words| words.contains(word));
    assert_eq!((0..read).find(|word| !has_one(word)), None);
}

#[test]
fn a_sink_that_is_not_read_is_detached() {
    let _dog = watchdog("a_sink_that_is_not_read_is_detached");
    let data = pattern(9 * MIB);
    for file in [false, true] {
        let source = file_with(&data);
        let (mut readers, mut writers) = pipes(2);
        let slow = readers.remove(0);
        let fast = read_all(readers);
        let mut sink = None;
        if file {
            // A socket has a private pipe and a transfer in front of it.
            let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
            writers[0] = OwnedFd::from(a);
            sink = Some(b);
        }
        let outcome = fan(&source, &writers)
            // The other one stays attached even if its reader is not scheduled.
            .sink_on_slow(0, OnSlow::Detach)
            .patience(Duration::from_millis(5))
            .run()
            .unwrap();
        drop(writers);
        assert_eq!(
            (outcome.ended, outcome.read),
            (Ended::Eof, data.len() as u64)
        );
        assert!(joined(fast)[0] == data);
        let sinks = audit(outcome);
        assert_eq!(sinks[1].0.ended, SinkEnded::Complete);
        let (first, back) = &sinks[0];
        assert_eq!(first.ended, SinkEnded::Detached, "{first:?}");
        assert_eq!(first.dropped, 0);
        let mut got = match sink {
            Some(mut sink) => {
                let mut all = Vec::new();
                sink.read_to_end(&mut all).unwrap();
                all
            }
            None => content_of(slow),
        };
        assert_eq!(got.len() as u64, first.written);
        got.extend(back);
        assert!(got == data[..got.len()]);
        assert_eq!(got.len() as u64, first.read);
    }
}

#[test]
fn the_slowest_sink_sets_the_pace_under_block() {
    let _dog = watchdog("the_slowest_sink_sets_the_pace_under_block");
    let data = pattern(9 * MIB);
    let source = file_with(&data);
    let (mut readers, writers) = pipes(2);
    let slow = readers.remove(0);
    let fast = read_all(readers);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let outcome = fan(&source, &writers).run().unwrap();
            drop(writers);
            outcome
        });
        // It is read in small pieces.
        let (mut all, mut piece) = (Vec::new(), vec![0; 10_007]);
        let mut slow = std::fs::File::from(slow);
        while let n @ 1.. = slow.read(&mut piece).unwrap() {
            all.extend_from_slice(&piece[..n]);
        }
        assert!(all == data);
        running.join().unwrap()
    });
    assert!(outcome.is_complete());
    assert!(joined(fast)[0] == data);
    audit(outcome);
}

#[test]
fn an_idle_limit_ends_a_fan_out_that_a_sink_blocks() {
    let _dog = watchdog("an_idle_limit_ends_a_fan_out_that_a_sink_blocks");
    let data = pattern(5 * MIB);
    let source = file_with(&data);
    let (mut readers, writers) = pipes(2);
    let slow = readers.remove(0);
    let fast = read_all(readers);
    let limited = Request {
        idle: Some(Duration::from_millis(20)),
        ..Request::default()
    };
    let outcome = request(&source, &writers, limited).run().unwrap();
    drop(writers);
    assert_eq!(outcome.ended, Ended::Idle);
    let sinks = audit(outcome);
    assert_eq!(sinks[0].0.ended, SinkEnded::Stopped);
    for ((sink, back), mut got) in sinks
        .into_iter()
        .zip([content_of(slow), joined(fast).remove(0)])
    {
        assert_eq!(got.len() as u64, sink.written);
        got.extend(back);
        assert!(got == data[..sink.read as usize]);
    }
}

/// A schedule concerns what is read, whatever the number of sinks.
#[test]
fn a_rate_holds_for_the_source() {
    let _dog = watchdog("a_rate_holds_for_the_source");
    const RATE: u64 = 1_000_000;
    let data = pattern(100_000);
    let source = file_with(&data);
    let (readers, writers) = pipes(3);
    let readers = read_all(readers);
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::rate(RATE));
    let outcome = fan(&source, &writers).control(&control).run().unwrap();
    drop(writers);
    assert!(outcome.is_complete(), "{outcome:?}");
    let allowed = u128::from(RATE) * outcome.source.elapsed.as_nanos() / 1_000_000_000;
    assert!(u128::from(outcome.read) <= allowed, "{outcome:?}");
    // Once, and not once for each sink.
    assert_eq!(outcome.read, data.len() as u64);
    assert!(joined(readers).iter().all(|got| *got == data));
}

/// Passes the data on to a sink whose lock is held, and to a pipe that gets all of it meanwhile. Then
/// `release` releases the lock. Returns the report of the first sink, and the result of `release`.
fn locked_sink<T>(
    policy: OnSlow,
    data: &[u8],
    locked: OwnedFd,
    release: impl FnOnce() -> T,
) -> (SinkReport, T) {
    let source = file_with(data);
    let (mut readers, mut writers) = pipes(2);
    writers[0] = locked;
    let mut fast = std::fs::File::from(readers.remove(1));
    let control = Control::new().unwrap();
    let running = fan(&source, &writers)
        .sink_on_slow(0, policy)
        .patience(Duration::from_millis(5))
        .control(&control);
    let (outcome, released) = std::thread::scope(|scope| {
        let running = scope.spawn(|| running.run().unwrap());
        let mut got = vec![0; data.len()];
        fast.read_exact(&mut got).unwrap();
        assert!(got == data);
        // The end waits for a sink that drops blocks.
        control.cancel();
        let released = release();
        (running.join().unwrap(), released)
    });
    assert_eq!(outcome.read, data.len() as u64);
    let mut sinks = audit(outcome);
    assert_eq!(sinks[1].0.written, data.len() as u64);
    let (slow, _) = sinks.remove(0);
    assert_eq!(slow.dropped > 0, policy == OnSlow::Drop, "{slow:?}");
    (slow, released)
}

/// As by a reader that splices the pipe into a full socket. No call on the pipe returns, and
/// `poll(2)` shows room.
#[test]
fn a_pipe_whose_lock_is_held_delays_no_other_sink() {
    let name = "a_pipe_whose_lock_is_held_delays_no_other_sink";
    if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
        return;
    }
    let _dog = watchdog(name);
    let data = pattern(9 * MIB);
    for policy in [OnSlow::Detach, OnSlow::Drop] {
        let (reader, writer) = std::io::pipe().unwrap();
        let sink = OwnedFd::from(writer.try_clone().unwrap());
        let locked = testkit::locked::Locked::of(reader, writer);
        locked_sink(policy, &data, sink, || drop(locked.release()));
    }
}

/// As of a file on a slow disk. Nothing ends a write to it.
#[test]
fn a_file_whose_lock_is_held_delays_no_other_sink() {
    let _dog = watchdog("a_file_whose_lock_is_held_delays_no_other_sink");
    let data = pattern(9 * MIB);
    for policy in [OnSlow::Detach, OnSlow::Drop] {
        let locked = match testkit::locked_file::LockedFile::new(data.len() as u64) {
            Ok(locked) => locked,
            Err(error) => return testkit::skip::here(format!("no file can be locked: {error}")),
        };
        let sink = OwnedFd::from(locked.file.try_clone().unwrap());
        let (slow, file) = locked_sink(policy, &data, sink, || locked.release());
        // The first bytes precede each gap.
        let first = slow.written.min(4096) as usize;
        assert!(content(&file)[..first] == data[..first]);
    }
}
