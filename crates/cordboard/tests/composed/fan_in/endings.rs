//! Sources and sinks that fail, refusals, cancelled and paused fan-ins.

use std::os::fd::{AsFd, OwnedFd};

use cordboard::fan_in::{OnFailure, SourceEnded, Turn};
use cordboard::{Control, Ended, Errno, FanIn, Request, Schedule};

use super::sources::{audit, fan, marked, of, reset, until};
use crate::common::{MIB, alone, content, content_of, file_with, position, watchdog};

#[test]
fn a_reset_source_is_detached_or_ends_all() {
    let _dog = watchdog("a_reset_source_is_detached_or_ends_all");
    for policy in OnFailure::ALL {
        let file = file_with(&marked(1, 9 * MIB));
        let sources = [reset(), file.try_clone().unwrap().into()];
        let sink = file_with(b"");
        let outcome = fan(&sources, &sink).on_failure(*policy).run().unwrap();
        let got = of(1, &content(&sink));
        let (ended, failed) = (outcome.ended, outcome.failed_source);
        let errno = outcome.errno;
        let reports = audit(outcome);
        assert_eq!(reports[0].0.errno, Some(Errno::ECONNRESET));
        assert_eq!(reports[1].0.written, got.len() as u64);
        assert_eq!(position(&file), reports[1].0.read);
        match policy {
            OnFailure::Detach => {
                assert_eq!((ended, failed, errno), (Ended::Eof, None, None));
                assert_eq!(reports[0].0.ended, SourceEnded::Detached);
                assert!(got == marked(1, 9 * MIB));
            }
            _ => {
                assert_eq!((ended, failed), (Ended::Error, Some(0)));
                assert_eq!(errno, Some(Errno::ECONNRESET));
                assert_eq!(reports[0].0.ended, SourceEnded::Failed);
                assert_eq!(reports[1].0.ended, SourceEnded::Stopped);
                assert!(got == marked(1, 9 * MIB)[..got.len()]);
                assert_eq!(reports[1].0.stranded, 0);
            }
        }
    }
}

#[test]
fn all_sources_that_fail_are_an_error() {
    let _dog = watchdog("all_sources_that_fail_are_an_error");
    let sources = [reset(), reset()];
    let sink = file_with(b"");
    let outcome = fan(&sources, &sink).on_failure(OnFailure::Detach);
    let outcome = outcome.run().unwrap();
    assert_eq!(
        (outcome.ended, outcome.failed_source),
        (Ended::Error, Some(0))
    );
    audit(outcome);
}

#[test]
fn a_closed_sink_strands_each_source_s_bytes() {
    let _dog = watchdog("a_closed_sink_strands_each_source_s_bytes");
    for turn in [Turn::ByTurn { bytes: 777 }, Turn::ByRecord { delimiter: 3 }] {
        let files = [0, 1, 2].map(|n| file_with(&marked(n, 2 * MIB)));
        let sources = files
            .each_ref()
            .map(|file| OwnedFd::from(file.try_clone().unwrap()));
        let (reader, writer) = std::io::pipe().unwrap();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut some = vec![0; 100_000];
                let mut done = 0;
                while done < some.len() {
                    done += rustix::io::read(&reader, &mut some[done..]).unwrap();
                }
            });
            fan(&sources, &writer).turn(turn).unwrap().run().unwrap()
        });
        assert_eq!(outcome.ended, Ended::Error);
        assert_eq!(outcome.errno, Some(Errno::EPIPE));
        assert_eq!(outcome.failed_source, None);
        for (n, (source, back)) in audit(outcome).into_iter().enumerate() {
            assert_eq!(position(&files[n]), source.read, "{turn:?}");
            let (from, to) = (source.written as usize, source.read as usize);
            assert!(back == marked(n, 2 * MIB)[from..to], "{turn:?}");
        }
    }
}

#[test]
fn a_full_sink_file_strands_each_source_s_bytes() {
    if !alone!() {
        return;
    }
    let _dog = watchdog("a_full_sink_file_strands_each_source_s_bytes");
    let sources: Vec<OwnedFd> = (0..2)
        .map(|n| file_with(&marked(n, 2 * MIB)).into())
        .collect();
    let sink = file_with(b"");
    let limit = rustix::process::Rlimit {
        current: Some(MIB as u64 + 100),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let outcome = fan(&sources, &sink).run().unwrap();
    assert_eq!(
        (outcome.ended, outcome.errno),
        (Ended::Error, Some(Errno::EFBIG))
    );
    assert_eq!(outcome.written, MIB as u64 + 100);
    let got = content(&sink);
    for (n, (source, back)) in audit(outcome).into_iter().enumerate() {
        let its = of(n, &got);
        assert_eq!(its.len() as u64, source.written);
        assert!([its, back].concat() == marked(n, 2 * MIB)[..source.read as usize]);
    }
}

#[test]
fn a_pause_acts_on_the_sink_and_a_cancel_strands() {
    let _dog = watchdog("a_pause_acts_on_the_sink_and_a_cancel_strands");
    let files = [0, 1].map(|n| file_with(&marked(n, 3 * MIB)));
    let sources = files
        .each_ref()
        .map(|file| OwnedFd::from(file.try_clone().unwrap()));
    let (reader, writer) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let outcome = std::thread::scope(|scope| {
        let running = fan(&sources, &writer).control(&control);
        let outcome = scope.spawn(|| running.run().unwrap());
        // The sources are read until the channel is full.
        until("the sources are read", || {
            files.iter().all(|file| position(file) > 100_000)
        });
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), 0);
        control.resume();
        let mut first = vec![0; 1000];
        assert!(rustix::io::read(&reader, &mut first).unwrap() > 0);
        control.cancel();
        outcome.join().unwrap()
    });
    assert_eq!(outcome.ended, Ended::Cancelled);
    drop(writer);
    let written = outcome.written;
    assert_eq!(content_of(reader).len() as u64 + 1000, written);
    for (n, (source, back)) in audit(outcome).into_iter().enumerate() {
        assert_eq!(position(&files[n]), source.read);
        let (from, to) = (source.written as usize, source.read as usize);
        assert!(back == marked(n, 3 * MIB)[from..to]);
    }
}

#[test]
fn a_schedule_acts_on_the_sink() {
    let _dog = watchdog("a_schedule_acts_on_the_sink");
    let sources: Vec<OwnedFd> = (0..2)
        .map(|n| file_with(&marked(n, 30_000)).into())
        .collect();
    let sink = file_with(b"");
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::rate(2_000_000));
    let outcome = fan(&sources, &sink).control(&control).run().unwrap();
    assert!(outcome.is_complete());
    assert_eq!(outcome.written, 60_000);
    audit(outcome);
}

#[test]
fn sources_that_are_one_file_or_the_sink_are_refused() {
    let file = file_with(b"abc");
    let other = file_with(b"");
    let (reader, _writer) = std::io::pipe().unwrap();
    let refused = |sources: &[&dyn AsFd]| {
        let sources: Vec<_> = sources.iter().map(|source| source.as_fd()).collect();
        let refused = FanIn::new(&sources, file.as_fd(), Request::default()).err();
        refused.map(|refused| (refused.source_index, refused.refusal.errno()))
    };
    assert_eq!(refused(&[&other, &reader]), None);
    assert_eq!(refused(&[&other, &other]), Some((1, Errno::EINVAL)));
    assert_eq!(refused(&[&reader, &reader]), Some((1, Errno::EINVAL)));
    assert_eq!(refused(&[&other, &file]), Some((1, Errno::EINVAL)));
    assert_eq!(refused(&[]), Some((0, Errno::EINVAL)));
    let (stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(refused(&[&stream, &stream]), Some((1, Errno::EINVAL)));
    assert_eq!(refused(&[&stream, &peer]), None);
}
