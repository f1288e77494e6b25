//! Sources, sinks and buffers that fail; cancelled transfers.

use std::io::{Read as _, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use cordboard::buffer::{BufferedOutcome, Place};
use cordboard::{
    Buffered, Control, DataPath, Ended, Errno, Observer, Progress, Request, Schedule, Side,
    Switches,
};

use super::runs::{audit, buffered, request, until};
use crate::common::mount::Mount;
use crate::common::{
    From, MIB, SOURCES, Source, alone, content, content_of, file_with, pattern, position, tcp_pair,
    watchdog,
};
use testkit::locked::{polls, switches};

#[test]
fn a_closed_sink_strands_or_rewinds() {
    let _dog = watchdog("a_closed_sink_strands_or_rewinds");
    for kind in SOURCES {
        let data = pattern(9 * MIB);
        let source = Source::new(kind, &data);
        let (reader, sink) = std::io::pipe().unwrap();
        let mut outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut some = vec![0; 100_000];
                let mut done = 0;
                while done < some.len() {
                    done += rustix::io::read(&reader, &mut some[done..]).unwrap();
                }
            });
            buffered(&source.fd, &sink, 4 << 20).run().unwrap()
        });
        assert_eq!(
            (outcome.ended, outcome.failed, outcome.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::EPIPE))
        );
        let back = audit(&mut outcome);
        let (written, read) = (outcome.written as usize, outcome.read as usize);
        assert!(back == data[written..read], "{kind:?}");
        // A file is rewound.
        assert!(back.is_empty() || kind != From::File);
        assert!(source.rest() == data[read..], "{kind:?}");
    }
}

/// The source has ended long before: all of it fits into the buffer.
#[test]
fn a_sink_that_closes_early_is_a_failure_after_the_end_of_a_file_too() {
    let _dog = watchdog("a_sink_that_closes_early_is_a_failure_after_the_end_of_a_file_too");
    for size in [None, Some(5 * MIB as u64)] {
        let data = pattern(6 * MIB);
        let source = Source::new(From::File, &data);
        let (mut reader, sink) = std::io::pipe().unwrap();
        let mut outcome = std::thread::scope(|scope| {
            scope.spawn(move || reader.read_exact(&mut [0; 100_000]).unwrap());
            let part = Request {
                size: size.map_or(cordboard::Size::Eof, cordboard::Size::Bytes),
                ..Request::default()
            };
            request(&source.fd, &sink, 16 << 20, part).run().unwrap()
        });
        assert_eq!(
            (outcome.ended, outcome.failed, outcome.errno),
            (Ended::Error, Some(Side::Sink), Some(Errno::EPIPE)),
            "{outcome:?}"
        );
        assert_eq!(outcome.read, outcome.written);
        assert!(audit(&mut outcome).is_empty());
        assert!(source.rest() == data[outcome.written as usize..]);
    }
}

/// The call that finds the end of the source needs a grant.
#[test]
fn a_reader_that_has_all_bytes_may_leave() {
    let _dog = watchdog("a_reader_that_has_all_bytes_may_leave");
    for kind in [From::File, From::Pipe] {
        let source = Source::new(kind, b"hello");
        let (reader, sink) = std::io::pipe().unwrap();
        let mut outcome = std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(1));
                }
            });
            let paced = buffered(&source.fd, &sink, 1 << 20);
            (paced.intake_schedule(Schedule::rate(100))).run().unwrap()
        });
        assert_eq!(
            (outcome.ended, outcome.failed),
            (Ended::Eof, None),
            "{outcome:?}"
        );
        assert_eq!((outcome.read, outcome.written), (5, 5));
        audit(&mut outcome);
    }
}

#[test]
fn a_cancelled_transfer_strands_what_it_holds_in_order() {
    let _dog = watchdog("a_cancelled_transfer_strands_what_it_holds_in_order");
    let directory = tempfile::tempdir().unwrap();
    for place in [
        Place::Memory,
        Place::Directory(directory.path().to_path_buf()),
    ] {
        let data = pattern(9 * MIB);
        let (source, mut feed) = std::io::pipe().unwrap();
        let (reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        let mut outcome = std::thread::scope(|scope| {
            let running = buffered(&source, &sink, 32 << 20).control(&control);
            let running = running.place(place.clone());
            let outcome = scope.spawn(|| running.run().unwrap());
            // The bytes fill the sink, both pipes and several files.
            feed.write_all(&data).unwrap();
            until("all was taken", || {
                rustix::io::ioctl_fionread(&source).unwrap() == 0
            });
            control.cancel();
            outcome.join().unwrap()
        });
        drop(sink);
        assert_eq!(outcome.ended, Ended::Cancelled);
        assert!(outcome.stored > 0);
        let got = content_of(reader);
        assert_eq!(got.len() as u64, outcome.written);
        let back = audit(&mut outcome);
        assert!([got, back].concat() == data);
    }
}

/// Stores the last level that was reported to an observer.
struct Level<'a>(&'a AtomicU64);

impl Observer for Level<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.0.store(progress.in_transit(), Ordering::SeqCst);
    }
}

#[test]
fn a_reset_source_drains_the_buffer() {
    let _dog = watchdog("a_reset_source_drains_the_buffer");
    let data = pattern(2 * MIB);
    let (source, mut peer) = tcp_pair();
    let level = AtomicU64::new(0);
    let (reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let got = std::thread::spawn(move || content_of(reader));
    let mut outcome = std::thread::scope(|scope| {
        let running = buffered(&source, &sink, 32 << 20).control(&control);
        let running = running.observe(Level(&level));
        let outcome = scope.spawn(|| running.run().unwrap());
        peer.write_all(&data).unwrap();
        until("all was taken", || {
            level.load(Ordering::SeqCst) == data.len() as u64
        });
        let linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&peer, linger).unwrap();
        drop(peer);
        control.resume();
        outcome.join().unwrap()
    });
    drop(sink);
    assert!(got.join().unwrap() == data);
    assert_eq!(
        (outcome.ended, outcome.failed, outcome.errno),
        (Ended::Error, Some(Side::Source), Some(Errno::ECONNRESET))
    );
    assert_eq!(outcome.stranded, 0);
    audit(&mut outcome);
}

#[test]
fn a_full_file_system_ends_the_reading_and_what_was_taken_is_written() {
    let _dog = watchdog("a_full_file_system");
    let Some(mount) = Mount::new("tmpfs", 2 << 20) else {
        return;
    };
    let data = pattern(20 * MIB);
    let (source, feed) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&feed, true).unwrap();
    let (reader, sink) = std::io::pipe().unwrap();
    let control = Control::new().unwrap();
    control.pause();
    let got = std::thread::spawn(move || content_of(reader));
    let mut outcome = std::thread::scope(|scope| {
        let running = buffered(&source, &sink, 16 << 20).control(&control);
        let running = running.place(Place::Directory(mount.path()));
        let (tell, told) = std::sync::mpsc::channel();
        let outcome = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            running.run().unwrap()
        });
        let task = format!("/proc/self/task/{}", told.recv().unwrap().as_raw_nonzero());
        let mut fed = 0;
        until("the source is not read", || {
            let before = switches(task.as_ref());
            let full = match rustix::io::write(&feed, &data[fed..]) {
                Ok(n) => {
                    fed += n;
                    false
                }
                Err(errno) => errno == rustix::io::Errno::AGAIN,
            };
            // It has slept since before the pipe was found full, so it does not wait for it.
            full && polls(task.as_ref()) && switches(task.as_ref()) == before
        });
        control.resume();
        outcome.join().unwrap()
    });
    drop((source, sink));
    assert!(got.join().unwrap() == data[..outcome.written as usize]);
    assert_eq!(
        (outcome.ended, outcome.failed, outcome.errno),
        (Ended::Error, None, Some(Errno::ENOSPC))
    );
    assert_eq!(outcome.stranded, 0);
    assert!(outcome.stored >= 1 << 20);
    audit(&mut outcome);
}

/// Returns whether this process has an open memfd of this many bytes.
fn has_memory_of(bytes: u64) -> bool {
    let opened = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut names = opened.map(|entry| entry.unwrap().path());
    names.any(|name| {
        let target = std::fs::read_link(&name).unwrap_or_default();
        let is_memory = target.to_string_lossy().starts_with("/memfd:");
        is_memory && std::fs::metadata(&name).is_ok_and(|file| file.len() == bytes)
    })
}

/// Runs a transfer that pauses until a file of its buffer has the length of a limit
/// (`RLIMIT_FSIZE`), which stays.
fn fills_a_file(transfer: Buffered<'_>) -> BufferedOutcome {
    // More than the first pipe, and the one in front of the second, hold: the first bytes of a
    // file are taken at once, and it is closed if it has no others.
    const LIMIT: u64 = 1_500_000;
    let limit = rustix::process::Rlimit {
        current: Some(LIMIT),
        maximum: None,
    };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let control = Control::new().unwrap();
    control.pause();
    std::thread::scope(|scope| {
        let running = transfer.control(&control);
        let outcome = scope.spawn(|| running.run().unwrap());
        until("a file is full", || has_memory_of(LIMIT));
        control.resume();
        outcome.join().unwrap()
    })
}

#[test]
fn a_limit_of_file_size_is_an_error_of_the_buffer() {
    if !alone!() {
        return;
    }
    let _dog = watchdog("a_limit_of_file_size_is_an_error_of_the_buffer");
    let data = pattern(20 * MIB);
    let source = file_with(&data);
    let (reader, sink) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let mut outcome = fills_a_file(buffered(&source, &sink, 16 << 20));
    drop(sink);
    assert!(got.join().unwrap() == data[..outcome.written as usize]);
    assert_eq!((outcome.failed, outcome.errno), (None, Some(Errno::EFBIG)));
    assert_eq!(position(&source), outcome.read);
    audit(&mut outcome);
}

/// A read takes more bytes than the first private pipe holds. The rest goes there once the sink
/// has accepted bytes.
#[test]
fn a_full_buffer_with_small_pipes_strands_nothing() {
    if !alone!() {
        return;
    }
    let _dog = watchdog("a_full_buffer_with_small_pipes_strands_nothing");
    let set_size = libc::F_SETPIPE_SZ as u32;
    testkit::refuse::refuse_where(testkit::refuse::FCNTL, 1, set_size, libc::EPERM);
    let source = std::fs::File::open("/dev/zero").unwrap();
    // It is read into a buffer. The pages of the private pipes go into the files.
    let from = source.as_raw_fd() as u32;
    testkit::refuse::refuse_where(libc::SYS_splice, 0, from, libc::EINVAL);
    let (reader, sink) = std::io::pipe().unwrap();
    let got = std::thread::spawn(move || content_of(reader));
    let paths = [DataPath::Splice, DataPath::ReadWrite];
    let by_read = Request {
        switches: Some(Switches::only(&paths)),
        ..Request::default()
    };
    let mut outcome = fills_a_file(request(&source, &sink, 16 << 20, by_read));
    drop(sink);
    assert_eq!(got.join().unwrap().len() as u64, outcome.written);
    assert_eq!((outcome.failed, outcome.errno), (None, Some(Errno::EFBIG)));
    assert_eq!(outcome.stranded, 0);
    assert_eq!(outcome.source.path, [DataPath::ReadWrite]);
    audit(&mut outcome);
}

/// The bytes may be zeros on the device.
#[test]
fn a_failed_writeback_ends_the_transfer() {
    let _dog = watchdog("a_failed_writeback_ends_the_transfer");
    let directory = tempfile::tempdir().unwrap();
    let data = pattern(6 * MIB);
    let run = |place: Place, switches, errno: Errno| {
        let source = file_with(&data);
        let (reader, sink) = std::io::pipe().unwrap();
        let control = Control::new().unwrap();
        control.pause();
        let got = std::thread::spawn(move || content_of(reader));
        let by = Request {
            switches,
            ..Request::default()
        };
        let mut outcome = std::thread::scope(|scope| {
            let running = request(&source, &sink, 8 << 20, by).control(&control);
            let running = running.place(place);
            let (tell, told) = std::sync::mpsc::channel();
            let outcome = scope.spawn(move || {
                tell.send(rustix::thread::gettid()).unwrap();
                testkit::refuse::refuse(&[libc::SYS_sync_file_range], errno.raw());
                running.run().unwrap()
            });
            let task = format!("/proc/self/task/{}", told.recv().unwrap().as_raw_nonzero());
            // All is taken, or the buffer has failed.
            until("it waits", || polls(task.as_ref()));
            control.resume();
            outcome.join().unwrap()
        });
        drop(sink);
        let got = got.join().unwrap();
        assert!(got == data[..outcome.written as usize]);
        // The source is rewound.
        assert_eq!(position(&source), outcome.written);
        audit(&mut outcome);
        (outcome.ended, outcome.failed, outcome.errno)
    };
    for switches in [None, Some(Switches::only(&[DataPath::ReadWrite]))] {
        let on_disk = || Place::Directory(directory.path().to_path_buf());
        for errno in [Errno::EIO, Errno::ENOSPC] {
            let ended = run(on_disk(), switches, errno);
            assert_eq!(ended, (Ended::Error, None, Some(errno)));
        }
        for errno in [Errno::ENOSYS, Errno::EPERM, Errno::EINVAL] {
            assert_eq!(run(on_disk(), switches, errno), (Ended::Eof, None, None));
        }
        let in_memory = run(Place::Memory, switches, Errno::EIO);
        assert_eq!(in_memory, (Ended::Eof, None, None));
    }
}

#[test]
fn a_directory_that_is_missing_is_refused() {
    let (source, sink) = (file_with(b"abc"), file_with(b""));
    let directory = tempfile::tempdir().unwrap();
    for (path, errno) in [
        (directory.path().join("none"), Some(Errno::ENOENT)),
        ("/dev/null".into(), Some(Errno::ENOTDIR)),
        // No file can be created in this directory.
        ("/proc/self".into(), None),
    ] {
        let running = buffered(&source, &sink, 10).place(Place::Directory(path));
        let refused = running.run().err().unwrap();
        assert!(refused.to_string().contains("buffer"), "{refused}");
        assert_eq!(refused.0.errno(), errno.unwrap_or(refused.0.errno()));
    }
    assert_eq!((position(&source), content(&sink)), (0, Vec::new()));
}
