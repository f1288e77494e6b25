//! Tests of handles.

use super::*;
use cordboard::Request;
use std::sync::mpsc::channel;

/// A transfer that has ended before it gets its handle. No other test uses
/// these numbers.
fn ended(numbers: [RawFd; 2]) -> (cord_transfer, Option<cord_transfer>) {
    let (source, _) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let running = cordboard::start(&source, &sink, Request::default()).unwrap();
    running.wait_for_end();
    let (sender, receiver) = channel();
    let id = table().insert(running, Some(numbers), move |_| {
        let latest = table().latest(numbers[0]);
        let same = latest.as_ref().ok() == table().latest(numbers[1]).as_ref().ok();
        let finished = latest.ok().filter(|id| {
            let entry = table().get(*id);
            same && entry.is_ok_and(|entry| entry.report().is_some())
        });
        sender.send(finished).unwrap();
    });
    (id, receiver.try_recv().expect("it was called at once"))
}

/// A program that gets the signal looks for the handle at once.
#[test]
fn the_handle_exists_before_the_end_is_reported() {
    let numbers = [1_000_001, 1_000_002];
    let mut before = 0;
    for _ in 0..2 {
        let (id, found) = ended(numbers);
        assert_eq!(found, Some(id));
        assert!(id > before);
        assert!(table().get(before).is_err(), "the previous one is detached");
        before = id;
    }
}

/// A program that gets the signal asks for the progress at once.
#[test]
fn the_status_is_ended_before_the_end_is_reported() {
    let numbers = [1_000_005, 1_000_006];
    let (source, feed) = std::io::pipe().unwrap();
    let sink = tempfile::tempfile().unwrap();
    let running = cordboard::start(&source, &sink, Request::default()).unwrap();
    let (sender, receiver) = channel();
    table().insert(running, Some(numbers), move |_| {
        let entry = table().latest(numbers[0]).and_then(|id| table().get(id));
        let status = entry.and_then(|entry| entry.status());
        sender.send(status.map(|status| status.ended).ok()).unwrap();
    });
    drop(feed);
    assert_eq!(receiver.recv().unwrap(), Some(1));
}

/// The numbers of the transfer refer to other files in such a thread.
#[test]
fn a_thread_with_descriptors_of_its_own_takes_no_step() {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    feed.write_all(b"abc").unwrap();
    let request = Request::default();
    let transfer = cordboard::Transfer::duplicating(source.as_fd(), sink.as_fd(), request).unwrap();
    let id = table().insert_stepped(Stepped::new(transfer, cordboard::Origin::here()).unwrap());
    let origin = cordboard::Origin::here();
    let elsewhere = std::thread::spawn(move || {
        testkit::child::own_descriptors();
        if origin.has_descriptors() {
            return testkit::skip::report("an unshared thread", "no kcmp(2) here");
        }
        let entry = table().get(id).unwrap();
        let refused = |done: Result<(), Error>| {
            assert_eq!(done.map_err(|error| error.errno), Err(Errno::EBADF));
        };
        refused(entry.step().map(drop));
        refused(entry.wait());
        refused(entry.descriptor().map(drop));
        refused(table().close(id));
    });
    elsewhere.join().unwrap();
    assert_eq!(table().get(id).unwrap().status().unwrap().read, 0);
    drop((feed, sink));
    table().get(id).unwrap().wait().unwrap();
    table().close(id).unwrap();
    let mut all = String::new();
    end.read_to_string(&mut all).unwrap();
    assert_eq!(all, "abc");
}

/// The close of the last descriptor of a connection with SO_LINGER waits for the peer.
#[test]
fn a_handle_is_closed_before_the_peer_has_read() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Read;
    use std::os::fd::AsFd;
    let _dog = testkit::watchdog::watch("a_handle_is_closed_before_the_peer_has_read");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut peer = listener.accept().unwrap().0;
    let hour = Some(std::time::Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&sink, hour).unwrap();
    let source = std::fs::File::open("/dev/zero").unwrap();
    let request = Request::default();
    let transfer = cordboard::Transfer::duplicating(source.as_fd(), sink.as_fd(), request).unwrap();
    let id = table().insert_stepped(Stepped::new(transfer, cordboard::Origin::here()).unwrap());
    drop(sink);
    let entry = table().get(id).unwrap();
    let (sender, receiver) = channel();
    entry.on_end(move |report| sender.send(report.written).unwrap());
    // Until the connection takes no more.
    let step_fd = crate::sys::lend(entry.descriptor().unwrap()).unwrap();
    let is_due = || {
        let mut fds = [PollFd::from_borrowed_fd(step_fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    };
    while is_due() {
        assert!(!entry.step().unwrap());
    }
    table().close(id).unwrap();
    let written = receiver.try_recv().expect("it has ended");
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u64, written);
}

/// A filter refuses all calls that wait for a descriptor.
#[test]
fn a_handle_is_closed_although_no_call_can_wait() {
    use std::os::fd::AsFd;
    use testkit::refuse;
    let (source, _feed) = std::io::pipe().unwrap();
    let (_end, sink) = std::io::pipe().unwrap();
    let request = Request::default();
    let transfer = cordboard::Transfer::duplicating(source.as_fd(), sink.as_fd(), request).unwrap();
    let id = table().insert_stepped(Stepped::new(transfer, cordboard::Origin::here()).unwrap());
    let (sender, receiver) = channel();
    let entry = table().get(id).unwrap();
    entry.on_end(move |report| sender.send(report.ended).unwrap());
    refuse::apart(|| {
        let calls = [refuse::PPOLL, refuse::POLL, refuse::SELECT];
        refuse::refuse(&calls.concat(), libc::EPERM);
        table().close(id).unwrap();
    });
    assert_eq!(receiver.try_recv(), Ok(cordboard::Ended::Cancelled));
}

/// A thread that finds a handle by its descriptor's number and waits for it
/// gets the report, even if the transfer ended before the handle existed.
#[test]
fn a_wait_for_the_latest_has_its_report() {
    use std::sync::atomic::AtomicBool;
    let numbers = [1_000_003, 1_000_004];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = testkit::ends::Ends(&over);
        let waits = scope.spawn(|| {
            let (mut last, mut waited) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                if let Ok(id) = table().latest(numbers[0])
                    && id > last
                    && let Ok(entry) = table().get(id)
                {
                    last = id;
                    waited += 1;
                    entry.wait()?;
                }
            }
            Ok::<_, Error>(waited)
        });
        for _ in 0..2000 {
            ended(numbers);
        }
        drop(ends);
        assert!(waits.join().unwrap().unwrap() > 0);
    });
}
