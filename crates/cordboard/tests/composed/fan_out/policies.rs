//! Slow sinks under each policy.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::fan_out::SinkEnded;
use cordboard::{Control, Ended, OnSlow, Request, Schedule};

use super::readers::{audit, fan, joined, pipes, read_all, request};
use crate::common::{MIB, content_of, file_with, pattern, watchdog};

#[test]
fn a_sink_that_is_not_read_gets_gaps_under_drop() {
    let _dog = watchdog("a_sink_that_is_not_read_gets_gaps_under_drop");
    let data = pattern(9 * MIB);
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
    let whole = outcome.read;
    assert!(whole <= data.len() as u64);
    let sinks = audit(outcome);
    let fast = joined(fast).remove(0);
    let (first, back) = &sinks[0];
    assert!(first.dropped > 0 && first.gaps == 1, "{first:?}");
    let mut got = content_of(slow);
    assert_eq!(got.len() as u64, first.written);
    got.extend(back);
    // The bytes before the gap, and those after it that were handed back.
    let equal = |got: &[u8]| (data.iter().zip(got)).take_while(|(a, b)| a == b).count();
    let before = equal(&got);
    assert!(before >= first.written as usize, "{before}: {first:?}");
    // A reader that is not scheduled can miss a block that fills the first sink.
    let (second, _) = &sinks[1];
    assert_eq!(second.written, fast.len() as u64);
    let start = equal(&fast);
    let end = start + second.dropped as usize;
    assert!(
        fast[start..] == data[end..end + fast.len() - start],
        "{second:?}"
    );
    assert!(
        end <= before || second.dropped == 0,
        "{end} > {before}: {second:?}"
    );
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
