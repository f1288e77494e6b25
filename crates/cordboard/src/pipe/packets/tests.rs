//! Inspections of packets.

use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe, pipe_with};

use super::*;

fn packets() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::DIRECT).unwrap()
}

/// A pipe with these buffers: lengths, and which of them are packets.
fn buffers(all: &[(usize, bool)]) -> (OwnedFd, OwnedFd) {
    let (source, sink) = pipe().unwrap();
    for (length, is_packet) in all {
        let (between, feed) = match is_packet {
            true => packets(),
            false => pipe().unwrap(),
        };
        rustix::io::write(&feed, &vec![7; *length]).unwrap();
        let flags = SpliceFlags::NONBLOCK;
        let moved = rustix::pipe::splice(&between, None, &sink, None, *length, flags);
        assert_eq!(moved, Ok(*length));
    }
    (source, sink)
}

#[test]
fn the_front_tells_of_every_packet_and_stays() {
    if testkit::needs::missing("the_front", &[testkit::needs::Need::Splice]) {
        return;
    }
    let lengths = [1, 2, 3, 1000, 4096];
    let lasts = [(1, true), (2, true), (4096, true), (1, false), (2, false)];
    for length in lengths {
        for is_packet in [true, false] {
            for last in lasts {
                let all = [(4096, false), (length, is_packet), last];
                let harmful = |(length, is_packet): (usize, bool)| is_packet && length > 1;
                let harms = all.into_iter().any(harmful);
                let (source, _feed) = buffers(&all);
                let there = 4096 + length + last.0;
                // The same from a second one on.
                for _ in 0..2 {
                    let found = front(source.as_fd(), 1 << 20);
                    let packet_of_one = all[1] == (1, true) || last == (1, true);
                    match found {
                        Ok(Front::Packets) => assert!(harms || packet_of_one, "{all:?}"),
                        found => {
                            assert_eq!(found, Ok(Front::Stream(there)), "{all:?}");
                            assert!(!harms, "{all:?}");
                        }
                    }
                }
                // No more than was asked for is inspected.
                assert_eq!(front(source.as_fd(), 1), Ok(Front::Stream(1)));
                assert_eq!(front(source.as_fd(), 4096), Ok(Front::Stream(4096)));
                let left = rustix::io::ioctl_fionread(&source);
                assert_eq!(left, Ok(there as u64));
            }
        }
    }
}

/// As many small buffers as the private pipe has slots, or more.
#[test]
fn small_buffers_take_several_inspections() {
    if testkit::needs::missing("small_buffers", &[testkit::needs::Need::Splice]) {
        return;
    }
    for last in [(8, false), (8, true)] {
        let mut all = vec![(8, false); 13];
        all.push(last);
        let (source, _feed) = buffers(&all);
        let own = || {
            let mut own = OwnedPipe::open().unwrap();
            own.resize(2 * page_size());
            assert_eq!(own.capacity(), 2 * page_size());
            own
        };
        let mut left = all.len() * 8;
        loop {
            match inspect(source.as_fd(), own(), left).unwrap() {
                Front::Stream(bytes) => {
                    assert!((1..=16).contains(&bytes));
                    rustix::io::read(&source, &mut vec![0; bytes]).unwrap();
                    left -= bytes;
                }
                Front::Packets => break assert!(last.1 && left > 1 && left <= 16),
                other => break assert!(other == Front::Nothing && left == 0 && !last.1),
            }
        }
    }
}

#[test]
fn an_empty_pipe_has_no_front() {
    let _only = testkit::child::without_children();
    for ((source, feed), expected) in [
        (pipe().unwrap(), Front::Stream(3)),
        (packets(), Front::Packets),
    ] {
        assert_eq!(front(source.as_fd(), 9), Ok(Front::Nothing));
        rustix::io::write(&feed, &[7; 3]).unwrap();
        drop(feed);
        assert_eq!(front(source.as_fd(), 9), Ok(expected));
        rustix::io::read(&source, &mut [0; 3]).unwrap();
        assert_eq!(front(source.as_fd(), 9), Ok(Front::End));
    }
    let file = tempfile::tempfile().unwrap();
    assert_eq!(front(file.as_fd(), 9), Err(Errno::EINVAL));
}

#[test]
fn a_pipe_has_ended_once_it_is_empty_and_has_no_writer() {
    let _only = testkit::child::without_children();
    use testkit::refuse::{POLL, PPOLL, SELECT, apart, refuse};
    let epoll = &[libc::SYS_epoll_create1][..];
    let looks = [PPOLL, POLL, epoll, SELECT];
    for refused in 0..=looks.len() {
        apart(|| {
            refuse(&looks[..refused].concat(), libc::EPERM);
            // select(2) does not tell an end from bytes, of which FIONREAD tells.
            let (no, yes) = match refused {
                0..=2 => (Some(false), Some(true)),
                3 => (Some(false), None),
                _ => (None, None),
            };
            let (source, feed) = pipe().unwrap();
            assert_eq!(has_ended(source.as_fd()), no, "it has a writer");
            rustix::io::write(&feed, b"x").unwrap();
            assert_eq!(has_ended(source.as_fd()), no);
            drop(feed);
            assert_eq!(has_ended(source.as_fd()), no, "it is not empty");
            rustix::io::read(&source, &mut [0; 1]).unwrap();
            assert_eq!(has_ended(source.as_fd()), yes);
        });
    }
}

#[test]
fn a_pipe_of_one_slot_tells_as_much() {
    let _only = testkit::child::without_children();
    let look = |source: &OwnedFd| {
        let own = acquire(page_size()).unwrap();
        assert_eq!(own.capacity(), page_size());
        inspect(source.as_fd(), own, 1 << 20)
    };
    for length in [1, 2, 3, 4096] {
        for ((source, feed), is_packet) in [(pipe().unwrap(), false), (packets(), true)] {
            assert_eq!(look(&source), Ok(Front::Nothing));
            rustix::io::write(&feed, &vec![7; length]).unwrap();
            let expected = match is_packet && length > 1 {
                true => Front::Packets,
                false => Front::Stream(length),
            };
            // The pipe is kept, and empty each time.
            for _ in 0..3 {
                assert_eq!(look(&source), Ok(expected), "{length}");
            }
            let there = rustix::io::ioctl_fionread(&source);
            assert_eq!(there, Ok(length as u64));
            drop(feed);
            rustix::io::read(&source, &mut vec![0; length]).unwrap();
            assert_eq!(look(&source), Ok(Front::End));
        }
    }
    let file = tempfile::tempfile().unwrap();
    assert_eq!(look(&file.into()), Err(Errno::EINVAL));
}

#[test]
fn what_is_remembered_is_one_pipe_s() {
    let now = Instant::now();
    let (stream, feed) = pipe().unwrap();
    rustix::io::write(&feed, b"stream").unwrap();
    assert_eq!(is_a_stream(stream.as_fd(), 4, now), Some(4));
    let (other, other_feed) = packets();
    rustix::io::write(&other_feed, b"packet").unwrap();
    assert_eq!(is_a_stream(other.as_fd(), 4, now), None);
    assert_eq!(is_a_stream(stream.as_fd(), 9, now), Some(6));
    // Remembered: nothing is inspected.
    rustix::io::read(&stream, &mut [0; 6]).unwrap();
    assert_eq!(is_a_stream(stream.as_fd(), 9, now), Some(9));
    assert_eq!(is_a_stream(stream.as_fd(), 9, now + FRESH), None);
    let file = tempfile::tempfile().unwrap();
    assert_eq!(is_a_stream(file.as_fd(), 9, now), None);
}

#[test]
fn what_lies_behind_what_was_inspected_is_inspected() {
    let now = Instant::now();
    let (stream, feed) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&feed, 4 * default_capacity()).unwrap();
    rustix::io::write(&feed, &vec![7; 2 * default_capacity()]).unwrap();
    assert_eq!(is_a_stream(stream.as_fd(), 9, now), Some(9));
    let ahead = LAST.get().unwrap().ahead;
    assert!(ahead > 9 && ahead < 2 * default_capacity());
    // The pipe is empty: an inspection would find nothing.
    rustix::io::read(&stream, &mut vec![0; 2 * default_capacity()]).unwrap();
    assert_eq!(is_a_stream(stream.as_fd(), ahead, now), Some(ahead));
    assert_eq!(is_a_stream(stream.as_fd(), 1, now), None);
}
