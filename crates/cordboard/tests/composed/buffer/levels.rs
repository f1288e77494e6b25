//! The level of the buffer: how many bytes it takes, and when.

use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use cordboard::buffer::Place;
use cordboard::{
    Control, DataPath, Ended, Observer, Progress, Request, Schedule, Switches, Transfer,
};

use testkit::needs::Need;

use super::runs::{audit, buffered, request, until};
use crate::common::{MIB, content, content_of, file_with, pattern, position, watchdog};

/// A burst goes into the buffer while the sink accepts no bytes, in each place.
#[test]
fn a_burst_is_taken_while_the_sink_waits() {
    let _dog = watchdog("a_burst_is_taken_while_the_sink_waits");
    let directory = tempfile::tempdir().unwrap();
    for place in [
        Place::Memory,
        Place::Directory(directory.path().to_path_buf()),
    ] {
        let size = 8 * MIB;
        let data = pattern(size);
        let (source, mut feed) = std::io::pipe().unwrap();
        let (reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        control.pause();
        let mut outcome = std::thread::scope(|scope| {
            let running = buffered(&source, &sink, size as u64).control(&control);
            let running = running.place(place.clone());
            let outcome = scope.spawn(|| running.run().unwrap());
            // Returns although no byte is written.
            feed.write_all(&data).unwrap();
            drop(feed);
            control.resume();
            let mut got = vec![0; size];
            (&reader).read_exact(&mut got).unwrap();
            assert!(got == data);
            outcome.join().unwrap()
        });
        assert_eq!((outcome.ended, outcome.errno), (Ended::Eof, None));
        assert_eq!(outcome.written, size as u64);
        // The bytes for which the pipes had no room.
        assert!(
            outcome.stored >= size as u64 - 3 * MIB as u64,
            "{outcome:?}"
        );
        assert!(outcome.most >= size as u64 - 2 * MIB as u64);
        audit(&mut outcome);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The buffer takes a burst while a write to the sink does not return.
#[test]
fn a_burst_is_taken_while_the_lock_of_the_file_is_held() {
    let _dog = watchdog("a_burst_is_taken_while_the_lock_of_the_file_is_held");
    let size = 8 * MIB;
    let locked = match testkit::locked_file::LockedFile::new(size as u64) {
        Ok(locked) => locked,
        Err(error) => return testkit::skip::here(format!("no file can be locked: {error}")),
    };
    let data = pattern(size);
    let (source, mut feed) = std::io::pipe().unwrap();
    let sink = locked.file.try_clone().unwrap();
    let (mut outcome, file) = std::thread::scope(|scope| {
        let running = buffered(&source, &sink, size as u64);
        let outcome = scope.spawn(|| running.run().unwrap());
        // Returns although no byte is written.
        feed.write_all(&data).unwrap();
        drop(feed);
        let file = locked.release();
        (outcome.join().unwrap(), file)
    });
    assert_eq!((outcome.ended, outcome.errno), (Ended::Eof, None));
    assert_eq!(outcome.written, size as u64);
    assert!(content(&file)[..size] == data);
    audit(&mut outcome);
}

/// Stores all progress that was reported to an observer.
struct Levels<'a>(&'a Mutex<Vec<Progress>>);

impl Observer for Levels<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.0.lock().unwrap().push(*progress);
    }
}

#[test]
fn no_more_than_its_size_is_taken() {
    let _dog = watchdog("no_more_than_its_size_is_taken");
    for size in [1, 1000, 4096, 70_000, MIB + 5, 5 * MIB] {
        let data = pattern(6 * MIB);
        let source = file_with(&data);
        let (reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        control.pause();
        let levels = Mutex::new(Vec::new());
        let mut outcome = std::thread::scope(|scope| {
            let running = buffered(&source, &sink, size as u64).control(&control);
            let running = running.observe(Levels(&levels));
            let outcome = scope.spawn(|| running.run().unwrap());
            until("the buffer is full", || position(&source) >= size as u64);
            until("the level is told", || {
                let levels = levels.lock().unwrap();
                levels.iter().any(|its| its.in_transit() == size as u64)
            });
            assert_eq!(position(&source), size as u64);
            control.resume();
            // A small buffer would take long for the rest.
            if size < 4096 {
                let mut some = vec![0; 5000];
                (&reader).read_exact(&mut some).unwrap();
                assert!(some == data[..5000]);
                control.cancel();
            } else {
                let mut got = vec![0; data.len()];
                (&reader).read_exact(&mut got).unwrap();
                assert!(got == data);
            }
            outcome.join().unwrap()
        });
        assert_eq!(outcome.most, size as u64);
        for progress in levels.into_inner().unwrap() {
            assert!(progress.in_transit() <= size as u64);
        }
        assert_eq!(position(&source), outcome.read);
        audit(&mut outcome);
    }
}

/// Bytes go from pipe to pipe, by `splice(2)` or by a copy.
#[test]
fn a_buffer_that_is_not_needed_stores_nothing() {
    let _dog = watchdog("a_buffer_that_is_not_needed_stores_nothing");
    for switches in [None, Some(Switches::only(&[DataPath::ReadWrite]))] {
        let copies = switches.is_some() || !Need::Splice.is_met();
        let data = pattern(100_000);
        let source = file_with(&data);
        let (reader, sink) = std::io::pipe().unwrap();
        let got = std::thread::spawn(move || content_of(reader));
        let given = Request {
            switches,
            ..Request::default()
        };
        let mut outcome = request(&source, &sink, 64 << 20, given).run().unwrap();
        drop(sink);
        assert!(got.join().unwrap() == data);
        assert_eq!(outcome.stored, 0);
        let path = if copies {
            DataPath::ReadWrite
        } else {
            DataPath::Splice
        };
        assert_eq!(outcome.sink.path, [path]);
        audit(&mut outcome);
    }
}

#[test]
fn pages_in_the_sink_stay_after_the_files_are_closed() {
    let _dog = watchdog("pages_in_the_sink_stay_after_the_files_are_closed");
    let directory = tempfile::tempdir().unwrap();
    for place in [
        Place::Memory,
        Place::Directory(directory.path().to_path_buf()),
    ] {
        let data = pattern(5 * MIB);
        let other = vec![0xaa; 5 * MIB];
        let stored = |data: &[u8]| {
            let source = file_with(data);
            let (reader, sink) = std::io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&sink, MIB).unwrap();
            let control = Control::new().unwrap();
            control.pause();
            let got = std::thread::scope(|scope| {
                let running = buffered(&source, &sink, 8 << 20).control(&control);
                let running = running.place(place.clone());
                let outcome = scope.spawn(|| running.run().unwrap());
                until("all is taken", || position(&source) == data.len() as u64);
                control.resume();
                let mut got = vec![0; data.len() - MIB / 2];
                (&reader).read_exact(&mut got).unwrap();
                let outcome = outcome.join().unwrap();
                assert!(outcome.stored > 2 << 20, "{outcome:?}");
                got
            });
            // The rest is in the pipe, and no file of the buffer is open.
            (got, reader)
        };
        let (mut got, mut reader) = stored(&data);
        // The freed memory is reused.
        stored(&other);
        reader.read_to_end(&mut got).unwrap();
        assert!(got == data, "{place:?}");
    }
}

#[test]
fn the_two_ends_have_schedules_of_their_own() {
    let _dog = watchdog("the_two_ends_have_schedules_of_their_own");
    let data = pattern(200_000);
    let source = file_with(&data);
    let sink = file_with(b"");
    let control = Control::new().unwrap();
    control.set_schedule(Schedule::rate(2_000_000));
    let running = buffered(&source, &sink, 1 << 20).control(&control);
    let mut outcome = running
        .intake_schedule(Schedule::rate(4_000_000))
        .run()
        .unwrap();
    assert_eq!(outcome.ended, Ended::Eof);
    assert!(content(&sink) == data);
    // The schedule of the source is twice as fast.
    assert!(outcome.most > 0);
    audit(&mut outcome);
}

/// Resumes a transfer to the sink once the intake rests.
struct Resumes(Control, u32);

impl Observer for Resumes {
    fn progress(&mut self, progress: &Progress) {
        self.1 += u32::from(progress.read == 4096);
        // The first calls are not after a wait: the block moves meanwhile.
        if self.1 == 10 {
            self.0.resume();
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// The idle limit is that of the sink, which has accepted every byte of the first block. A
/// transfer that begins later has the same limit, and ends.
#[test]
fn the_idle_limit_does_not_run_during_a_rest_of_the_intake() {
    let _dog = watchdog("the_idle_limit_does_not_run_during_a_rest_of_the_intake");
    let (source, sink) = (file_with(&pattern(8192)), file_with(b""));
    let limited = Request {
        idle: Some(Duration::from_millis(100)),
        block: NonZeroUsize::new(4096),
        ..Request::default()
    };
    let control = Control::new().unwrap();
    control.pause();
    let running = request(&source, &sink, 1 << 20, limited.clone());
    let running = (running
        .control(&control)
        .observe(Resumes(control.clone(), 0)))
    .intake_schedule(Schedule::blocks(1, Duration::from_secs(3600)));
    let mut outcome = std::thread::scope(|scope| {
        let outcome = scope.spawn(|| running.run().unwrap());
        until("the first block is written", || {
            content(&sink).len() == 4096
        });
        for _ in 0..2 {
            let (silent, _feed) = std::io::pipe().unwrap();
            let ends = (silent.into(), file_with(b"").into());
            let other = Transfer::owning(ends.0, ends.1, limited.clone()).unwrap();
            let ended = other.start().unwrap().wait().report.ended;
            assert_eq!(ended, Ended::Idle);
        }
        control.cancel();
        outcome.join().unwrap()
    });
    assert_eq!(outcome.ended, Ended::Cancelled, "{outcome:?}");
    assert_eq!(outcome.written, 4096);
    audit(&mut outcome);
}

#[test]
fn without_splice_the_bytes_pass_through_user_space() {
    let _dog = watchdog("without_splice_the_bytes_pass_through_user_space");
    let (data, size) = (pattern(9 * MIB + 7), 4 << 20);
    let source = file_with(&data);
    let sink = file_with(b"");
    let only = Request {
        switches: Some(Switches::only(&[DataPath::ReadWrite])),
        ..Request::default()
    };
    let control = Control::new().unwrap();
    control.pause();
    let mut outcome = std::thread::scope(|scope| {
        let running = request(&source, &sink, size, only).control(&control);
        let outcome = scope.spawn(|| running.run().unwrap());
        until("the buffer is full", || position(&source) == size);
        control.resume();
        outcome.join().unwrap()
    });
    assert!(content(&sink) == data);
    assert_eq!(outcome.source.path, [DataPath::ReadWrite]);
    // The rest was in the two pipes.
    assert!(outcome.stored >= size - 2 * MIB as u64, "{outcome:?}");
    audit(&mut outcome);
}

#[test]
fn refused_calls_are_replaced() {
    let _dog = watchdog("refused_calls_are_replaced");
    let data = pattern(3 * MIB + 7);
    for errno in [libc::ENOSYS, libc::EPERM, libc::EINVAL] {
        let source = file_with(&data);
        let sink = file_with(b"");
        let mut outcome = testkit::refuse::apart(|| {
            testkit::refuse::refuse(&[libc::SYS_splice], errno);
            buffered(&source, &sink, 2 << 20).run().unwrap()
        });
        assert_eq!(outcome.ended, Ended::Eof);
        assert!(content(&sink) == data);
        audit(&mut outcome);
    }
}
