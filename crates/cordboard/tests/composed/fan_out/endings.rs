//! Sinks that fail, refusals, cancelled fan-outs.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cordboard::fan_out::SinkEnded;
use cordboard::{Control, Ended, Errno, FanOut, Observer, OnSlow, Progress, Request};

use super::readers::{audit, fan, joined, pipes, read_all};
use crate::common::{MIB, alone, content_of, file_with, pattern, tcp_pair, watchdog};

/// Reads so many bytes, then closes the pipe.
fn read_some(reader: OwnedFd, count: usize) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = vec![0; count];
        let mut done = 0;
        while done < count {
            done += rustix::io::read(&reader, &mut got[done..]).unwrap();
        }
        got
    })
}

#[test]
fn a_dead_pipe_harms_no_other_sink() {
    let _dog = watchdog("a_dead_pipe_harms_no_other_sink");
    let data = pattern(9 * MIB);
    for policy in [OnSlow::Drop, OnSlow::Detach] {
        let source = file_with(&data);
        let (mut readers, writers) = pipes(3);
        let dying = read_some(readers.remove(1), 1000);
        let others = read_all(readers);
        // A sink with `block` does not drop bytes.
        let running = fan(&source, &writers).sink_on_slow(1, policy);
        let outcome = running.run().unwrap();
        drop(writers);
        assert_eq!(
            (outcome.ended, outcome.read),
            (Ended::Eof, data.len() as u64)
        );
        assert!(joined(others).iter().all(|got| *got == data));
        assert!(dying.join().unwrap() == data[..1000]);
        let sinks = audit(outcome);
        let (dead, _) = &sinks[1];
        assert_eq!(
            (dead.ended, dead.errno),
            (SinkEnded::Failed, Some(Errno::EPIPE))
        );
        assert_eq!(sinks[0].0.ended, SinkEnded::Complete);
    }
}

/// Says when a sink was detached.
struct Detached<'a>(&'a AtomicBool);

impl Observer for Detached<'_> {
    fn progress(&mut self, progress: &Progress) {
        if progress.sinks < 2 {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// One sink is detached, and then the last one fails.
#[test]
fn a_fan_out_without_sinks_names_the_one_that_failed() {
    let _dog = watchdog("a_fan_out_without_sinks_names_the_one_that_failed");
    let (source, mut feed) = std::io::pipe().unwrap();
    let feeding = std::thread::spawn(move || while feed.write_all(&[7; 4096]).is_ok() {});
    let (mut readers, writers) = pipes(2);
    let dying = readers.remove(1);
    let is_detached = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = [0; 65_536];
            while !is_detached.load(Ordering::Relaxed) {
                rustix::io::read(&dying, &mut piece).unwrap();
            }
            drop(dying);
        });
        // The other one is not detached, even if its reader is not scheduled.
        let running = fan(&source, &writers)
            .sink_on_slow(0, OnSlow::Detach)
            .sink_on_slow(1, OnSlow::Drop)
            .patience(Duration::from_millis(1));
        running.observe(Detached(&is_detached)).run().unwrap()
    });
    drop(source);
    feeding.join().unwrap();
    assert_eq!(
        (outcome.ended, outcome.failed_sink, outcome.errno),
        (Ended::Error, Some(1), Some(Errno::EPIPE))
    );
    let sinks = audit(outcome);
    assert_eq!(sinks[0].0.ended, SinkEnded::Detached);
    assert_eq!(sinks[1].0.ended, SinkEnded::Failed);
}

#[test]
fn a_failed_sink_ends_the_fan_out_under_block() {
    let _dog = watchdog("a_failed_sink_ends_the_fan_out_under_block");
    let data = pattern(20 * MIB);
    let source = file_with(&data);
    let (mut readers, writers) = pipes(2);
    let dying = read_some(readers.remove(0), 1000);
    let other = read_all(readers);
    let outcome = fan(&source, &writers).run().unwrap();
    drop(writers);
    dying.join().unwrap();
    assert_eq!(
        (outcome.ended, outcome.errno),
        (Ended::Error, Some(Errno::EPIPE))
    );
    assert_eq!(outcome.failed_sink, Some(0));
    let read = outcome.read;
    assert!(read < data.len() as u64);
    assert_eq!(crate::common::position(&source), read);
    // The other sink has every byte that was read.
    assert!(joined(other)[0] == data[..read as usize]);
    audit(outcome);
}

#[test]
fn a_reset_connection_harms_no_other_sink() {
    let _dog = watchdog("a_reset_connection_harms_no_other_sink");
    let data = pattern(20 * MIB);
    let source = file_with(&data);
    let (readers, mut writers) = pipes(2);
    let (sink, peer) = tcp_pair();
    rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
    drop(peer);
    writers.insert(1, OwnedFd::from(sink));
    let others = read_all(readers);
    let outcome = fan(&source, &writers)
        .sink_on_slow(1, OnSlow::Detach)
        .run()
        .unwrap();
    drop(writers);
    assert_eq!(outcome.ended, Ended::Eof);
    assert!(joined(others).iter().all(|got| *got == data));
    let sinks = audit(outcome);
    let (dead, back) = &sinks[1];
    assert_eq!(dead.ended, SinkEnded::Failed);
    assert!(
        matches!(dead.errno, Some(Errno::ECONNRESET | Errno::EPIPE)),
        "{dead:?}"
    );
    assert!(*back == data[dead.written as usize..dead.read as usize]);
}

#[test]
fn a_full_file_harms_no_other_sink() {
    if !alone!() {
        return;
    }
    let _dog = watchdog("a_full_file_harms_no_other_sink");
    let data = pattern(6 * MIB);
    let source = file_with(&data);
    let (readers, mut writers) = pipes(2);
    let file = file_with(b"");
    writers.insert(0, OwnedFd::from(file.try_clone().unwrap()));
    let others = read_all(readers);
    let limit = rustix::process::Rlimit {
        current: Some(MIB as u64 + 100),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let outcome = fan(&source, &writers)
        .sink_on_slow(0, OnSlow::Detach)
        .run()
        .unwrap();
    drop(writers);
    assert_eq!(outcome.ended, Ended::Eof);
    assert!(joined(others).iter().all(|got| *got == data));
    let sinks = audit(outcome);
    let (full, back) = &sinks[0];
    assert_eq!(
        (full.ended, full.errno),
        (SinkEnded::Failed, Some(Errno::EFBIG))
    );
    assert_eq!(full.written, MIB as u64 + 100);
    assert!(*back == data[full.written as usize..full.read as usize]);
}

#[test]
fn a_cancelled_fan_out_strands_what_it_has_read() {
    let _dog = watchdog("a_cancelled_fan_out_strands_what_it_has_read");
    let data = pattern(9 * MIB);
    let source = file_with(&data);
    let (readers, writers) = pipes(2);
    let control = Control::new().unwrap();
    let running = fan(&source, &writers).control(&control);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| running.run().unwrap());
        while crate::common::position(&source) == 0 {
            std::thread::yield_now();
        }
        control.cancel();
        running.join().unwrap()
    });
    drop(writers);
    assert_eq!(outcome.ended, Ended::Cancelled);
    assert_eq!(crate::common::position(&source), outcome.read);
    for ((sink, back), reader) in audit(outcome).into_iter().zip(readers) {
        let mut got = content_of(reader);
        assert_eq!(got.len() as u64, sink.written);
        got.extend(back);
        assert!(got == data[..sink.read as usize]);
    }
}

#[test]
fn sinks_that_are_one_file_or_the_source_are_refused() {
    let file = file_with(b"abc");
    let other = file_with(b"");
    let (_reader, writer) = std::io::pipe().unwrap();
    let refused = |sinks: &[&dyn AsFd]| {
        let sinks: Vec<_> = sinks.iter().map(|sink| sink.as_fd()).collect();
        let refused = FanOut::new(file.as_fd(), &sinks, Request::default()).err();
        refused.map(|refused| (refused.sink, refused.refusal.errno()))
    };
    assert_eq!(refused(&[&other, &writer]), None);
    assert_eq!(refused(&[&other, &other]), Some((1, Errno::EINVAL)));
    assert_eq!(
        refused(&[&writer, &other, &writer]),
        Some((2, Errno::EINVAL))
    );
    assert_eq!(refused(&[&other, &file]), Some((1, Errno::EINVAL)));
    assert_eq!(refused(&[]), Some((0, Errno::EINVAL)));
    // Also by another descriptor.
    let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let again = stream.try_clone().unwrap();
    assert_eq!(refused(&[&stream, &again]), Some((1, Errno::EINVAL)));
    let (tcp, its_peer) = tcp_pair();
    assert_eq!(refused(&[&tcp, &other, &tcp]), Some((2, Errno::EINVAL)));
    assert_eq!(refused(&[&tcp, &its_peer, &stream]), None);
    // Each datagram stays whole.
    let (datagrams, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    assert_eq!(refused(&[&datagrams, &datagrams]), None);
    // A terminal or /dev/null may be named twice.
    let null = std::fs::File::options()
        .write(true)
        .open("/dev/null")
        .unwrap();
    assert_eq!(refused(&[&null, &null]), None);
}
