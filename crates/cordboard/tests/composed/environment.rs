//! The paths that the environment disables.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use cordboard::buffer::Place;
use cordboard::fan_out::Carry;
use cordboard::{Buffered, Control, DataPath, Request};
use testkit::owned::Start;

use crate::buffer::runs;
use crate::common::{self, MIB, content, file_with, pattern, position, watchdog};
use crate::fan_in::sources;
use crate::fan_out::readers::{self, joined, pipes, read_all};

const VARIABLE: &str = "CORDBOARD_WITHOUT";

/// The private pipes of a buffer and of a fan-out follow it, not only the transfers.
#[test]
fn without_splice_no_page_passes_between_private_pipes() {
    let name = "without_splice_no_page_passes_between_private_pipes";
    let _dog = watchdog(name);
    if std::env::var_os(VARIABLE).is_none_or(|paths| paths != "splice") {
        let mut command = common::command_of(common::this_test!());
        testkit::environment::defaults(&mut command).env(VARIABLE, "splice");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.start().wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        return;
    }
    let data = pattern(MIB + 7);
    let source = file_with(&data);
    let (pipes, mut sinks) = pipes(2);
    let file = file_with(b"");
    sinks.insert(1, OwnedFd::from(file.try_clone().unwrap()));
    let got = read_all(pipes);
    let outcome = readers::fan(&source, &sinks).run().unwrap();
    drop(sinks);
    assert!(joined(got).iter().all(|got| *got == data));
    assert!(content(&file) == data);
    for (sink, _) in readers::audit(outcome) {
        assert_eq!(sink.carried, [Carry::Write]);
    }
    buffers(name, &data);
}

/// With a call of `splice(2)`, the test fails.
fn buffers(name: &str, data: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    for place in [
        Place::Memory,
        Place::Directory(directory.path().to_path_buf()),
    ] {
        let data = data.repeat(4);
        let (source, sink) = (file_with(&data), file_with(b""));
        let control = Control::new().unwrap();
        control.pause();
        let running: Buffered<'_> =
            runs::request(&source, &sink, 16 << 20, Request::default()).control(&control);
        let running = running.place(place);
        let mut outcome = None;
        let body = || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let all = || position(&source) == data.len() as u64;
                    runs::until("all is taken", all);
                    control.resume();
                });
                outcome = Some(running.run().unwrap());
            });
        };
        let calls = testkit::midst::at_each(&[libc::SYS_splice], body, || {});
        let Some(calls) = calls else {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        };
        assert_eq!(calls, 0);
        let mut outcome = outcome.unwrap();
        assert!(content(&sink) == data);
        assert!(outcome.stored > 0);
        assert_eq!(outcome.source.path, [DataPath::ReadWrite]);
        runs::audit(&mut outcome);
    }
}

/// As a single transfer does, a composition waits by `select(2)`.
#[test]
fn compositions_wait_without_poll() {
    let _dog = watchdog("compositions_wait_without_poll");
    let data = pattern(3 * MIB + 7);
    for errno in [libc::EPERM, libc::EINVAL] {
        let without_poll = || {
            let calls = [testkit::refuse::PPOLL, testkit::refuse::POLL].concat();
            testkit::refuse::refuse(&calls, errno);
        };
        let source = file_with(&data);
        let (readers, sinks) = pipes(2);
        let readers = read_all(readers);
        let outcome = testkit::refuse::apart(|| {
            without_poll();
            readers::fan(&source, &sinks).run().unwrap()
        });
        drop(sinks);
        assert!(outcome.is_complete(), "{outcome:?}");
        assert!(joined(readers).iter().all(|got| *got == data));

        let (sources, feeds) = pipes(2);
        let feeds = feeds.into_iter().map(std::fs::File::from);
        let sink = file_with(b"");
        let outcome = std::thread::scope(|scope| {
            for mut feed in feeds {
                let data = &data;
                scope.spawn(move || std::io::Write::write_all(&mut feed, data).unwrap());
            }
            testkit::refuse::apart(|| {
                without_poll();
                sources::fan(&sources, &sink).run().unwrap()
            })
        });
        assert!(outcome.is_complete(), "{outcome:?}");
        assert_eq!(outcome.written, 2 * data.len() as u64);

        let (source, sink) = (file_with(&data), file_with(b""));
        let mut outcome = testkit::refuse::apart(|| {
            without_poll();
            let running = runs::request(&source, &sink, 1 << 20, Request::default());
            running.run().unwrap()
        });
        assert!(content(&sink) == data);
        runs::audit(&mut outcome);
    }
}
