//! A child of `fork(2)` that has the private channels of a composition open.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use cordboard::{Ended, Request, Size};
use testkit::child::Heir;

use crate::common::{alone, content, file_with, pattern, watchdog};
use crate::{buffer::runs, fan_in::sources, fan_out::readers};

const HALF: usize = 100_000;

fn whole() -> Request {
    Request {
        size: Size::Bytes(2 * HALF as u64),
        ..Request::default()
    }
}

/// The composition moves bytes of a pipe to these files. It ends although a child has its
/// channels from the middle on.
fn ends_beside_a_child(files: &[&File], run: impl FnOnce(OwnedFd) -> Ended + Send) {
    let data = pattern(2 * HALF);
    let (source, mut feed) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || run(source.into()));
        feed.write_all(&data[..HALF]).unwrap();
        let arrived = |file: &&File| file.metadata().unwrap().len() >= HALF as u64;
        runs::until("the first half", || files.iter().all(arrived));
        let child = Heir::fork();
        feed.write_all(&data[HALF..]).unwrap();
        assert_eq!(running.join().unwrap(), Ended::Size);
        drop(child);
    });
    files.iter().for_each(|file| assert!(content(file) == data));
}

#[test]
fn a_child_keeps_no_composition_from_its_end() {
    let _dog = watchdog("a_child_keeps_no_composition_from_its_end");
    if !alone!() {
        return;
    }
    let sinks = [file_with(b""), file_with(b"")];
    ends_beside_a_child(&[&sinks[0], &sinks[1]], |source| {
        let sinks = [0, 1].map(|n| OwnedFd::from(sinks[n].try_clone().unwrap()));
        let fan = readers::request(&source, &sinks, whole());
        fan.run().unwrap().ended
    });
    let sink = file_with(b"");
    ends_beside_a_child(&[&sink], |source| {
        let fan = sources::request(std::slice::from_ref(&source), &sink, whole());
        fan.run().unwrap().ended
    });
    let sink = file_with(b"");
    ends_beside_a_child(&[&sink], |source| {
        let buffered = runs::request(&source, &sink, 4 << 20, whole());
        buffered.run().unwrap().ended
    });
}
