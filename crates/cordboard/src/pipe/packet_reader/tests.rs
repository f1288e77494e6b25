//! Packets beside other readers, and under filters.

use super::*;

/// A watchdog for a test of this name, where pipes can be spliced.
fn splices(name: &'static str) -> Option<testkit::watchdog::Watched> {
    let dog = testkit::watchdog::watch(name);
    (!testkit::needs::missing(name, &[testkit::needs::Need::Splice])).then_some(dog)
}

fn mode(may_wait: bool, is_whole: bool) -> ReadMode {
    ReadMode {
        may_wait,
        is_whole,
        is_unasked: false,
        is_named: false,
    }
}

/// Another reader takes the short packet that was there, and a longer one
/// comes, before any of these calls.
#[test]
fn a_longer_packet_that_has_come_is_read_whole() {
    let _only = testkit::child::without_children();
    let Some(_dog) = splices("a_longer_packet_that_has_come_is_read_whole") else {
        return;
    };
    let flags = rustix::pipe::PipeFlags::DIRECT;
    drop(acquire(default_capacity()));
    for (short, length) in [(10, 1 << 16), (3000, 4096), (10, 1000)] {
        for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
            let case = format!("{short} {length} {may_wait} {whole}");
            let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
            rustix::io::write(&writer, &vec![1; short]).unwrap();
            let (mut told, mut into, mut taken) = (None, vec![0; length], false);
            let body = || {
                let mut packet_reader = PacketReader::default();
                told = Some(packet_reader.read(reader.as_fd(), &mut into, mode(may_wait, whole)));
            };
            let calls = [libc::SYS_read, libc::SYS_preadv2, libc::SYS_splice];
            let others = || {
                if !std::mem::replace(&mut taken, true) {
                    assert_eq!(rustix::io::read(&reader, &mut [0; 4096]), Ok(short));
                    rustix::io::write(&writer, &[7; 4000]).unwrap();
                }
            };
            let Some(held) = testkit::midst::at_each(&calls, body, others) else {
                return testkit::skip::report("nowait", "calls of another thread cannot be held");
            };
            assert!(held > 0, "{case}");
            let got = told.unwrap().unwrap();
            assert!(into[..got].iter().all(|byte| *byte == 7), "{case}");
            drop(writer);
            let rest = rustix::io::read(&reader, &mut [0; 4096]).unwrap();
            assert_eq!(got + rest, 4000, "{case}: {got} and {rest}");
        }
    }
}

#[test]
fn what_came_over_is_read_whatever_the_first_call_says() {
    let Some(_dog) = splices("what_came_over_is_read_whatever_the_first_call_says") else {
        return;
    };
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&writer, &[7; 5000]).unwrap();
    let (mut told, mut into) = (None, [0; 3000]);
    let body = || {
        let mut packet_reader = PacketReader::default();
        told = Some(packet_reader.read(reader.as_fd(), &mut into, mode(true, false)));
    };
    let refuse = |count| (count < 3).then_some(libc::EAGAIN);
    let Some(reads) = testkit::midst::refusing(&[libc::SYS_read], body, refuse) else {
        return testkit::skip::report("packet_reader", "calls of another thread cannot be held");
    };
    assert_eq!((told, into), (Some(Ok(3000)), [7; 3000]));
    assert_eq!(reads, 4);
}

/// Another reader has taken the bytes by now: an interrupted read is not repeated,
/// since it would wait.
#[test]
fn a_signal_ends_a_read_of_what_others_have_taken() {
    let _dog = testkit::watchdog::watch("a_signal_ends_a_read_of_what_others_have_taken");
    for taken in [true, false] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, &[7; 5000]).unwrap();
        let mut told = None;
        // The buffer has the pipe's capacity: it is read directly.
        let mut into = vec![0; capacity(reader.as_fd())];
        let body = || {
            let mut packet_reader = PacketReader::default();
            told = Some(packet_reader.read(reader.as_fd(), &mut into, mode(true, false)));
        };
        let signal = |count| {
            (count == 0).then(|| {
                if taken {
                    rustix::io::read(&reader, &mut [0; 5000]).unwrap();
                }
                libc::EINTR
            })
        };
        let Some(reads) = testkit::midst::refusing(&[libc::SYS_read], body, signal) else {
            return testkit::skip::report("nowait", "calls of another thread cannot be held");
        };
        let expected = match taken {
            true => (Some(Err(Errno::EINTR)), 1),
            false => (Some(Ok(5000)), 2),
        };
        assert_eq!((told, reads), expected, "{taken}");
    }
}

/// A packet that comes only after the pipe was found empty.
#[test]
fn no_short_read_waits_for_a_packet() {
    use testkit::{midst, refuse};
    let _dog = testkit::watchdog::watch("no_short_read_waits_for_a_packet");
    let flags = rustix::pipe::PipeFlags::DIRECT;
    // Values that are determined once per process are determined before the calls are
    // held.
    drop(acquire(default_capacity()));
    let refused = [libc::SYS_splice, libc::SYS_vmsplice];
    for may_wait in [true, false] {
        let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
        let mut told = None;
        let mode = mode(may_wait, false);
        let read = || PacketReader::default().read(reader.as_fd(), &mut [0; 10], mode);
        let body = || {
            refuse::refuse(&refused, libc::EPERM);
            told = Some(read());
        };
        let calls = [libc::SYS_read, libc::SYS_preadv2];
        let come = || _ = rustix::io::write(&writer, &[7; 100]).unwrap();
        let Some(reads) = midst::at_each(&calls, body, come) else {
            return testkit::skip::report("nowait", "calls of another thread cannot be held");
        };
        assert_eq!((told, reads), (Some(Err(Errno::EAGAIN)), 0), "{may_wait}");
        come();
        let told = testkit::refuse::apart(|| {
            refuse::refuse(&refused, libc::EPERM);
            read()
        });
        assert_eq!(told, Err(Errno::EMSGSIZE), "{may_wait}");
    }
}

/// Packets that are shorter than the rest of a limit: the private pipe is emptied to
/// the last byte, and the rest of the last packet stays.
#[test]
fn no_packet_is_cut_at_a_limit() {
    let _only = testkit::child::without_children();
    let flags = rustix::pipe::PipeFlags::DIRECT;
    for (lengths, limit) in [
        (&[1, 3000][..], 880),
        (&[3000, 1], 880),
        (&[1, 1, 1, 4096], 4097),
        (&[4096, 4096], 5000),
    ] {
        for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
            let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
            for length in lengths {
                rustix::io::write(&writer, &vec![7; *length]).unwrap();
            }
            drop(writer);
            let (mut packet_reader, mut all, mut into) =
                (PacketReader::default(), 0, vec![0; limit]);
            loop {
                match packet_reader.read(reader.as_fd(), &mut into, mode(may_wait, whole)) {
                    Ok(0) => break,
                    got => all += got.unwrap(),
                }
            }
            assert_eq!(
                all,
                lengths.iter().sum::<usize>(),
                "{lengths:?} {may_wait} {whole}"
            );
        }
    }
}

/// An empty pipe is not read, and its end is detected.
#[test]
fn what_is_empty_is_polled() {
    let _only = testkit::child::without_children();
    for (kind, is_named) in [("pipe", false), ("FIFO", true)] {
        let (reader, writer) = match is_named {
            true => testkit::obstacle::fifo().unwrap(),
            false => rustix::pipe::pipe().unwrap(),
        };
        for may_wait in [true, false] {
            let mode = ReadMode {
                is_unasked: may_wait,
                is_named,
                ..mode(may_wait, false)
            };
            let read = || PacketReader::default().read(reader.as_fd(), &mut [0; 1 << 16], mode);
            assert_eq!(read(), Err(Errno::EAGAIN), "{kind} {may_wait}");
            rustix::io::write(&writer, b"x").unwrap();
            assert_eq!(read(), Ok(1), "{kind} {may_wait}");
        }
        drop(writer);
        let told = PacketReader::default().read(reader.as_fd(), &mut [0; 9], mode(true, false));
        assert_eq!(told, Ok(0), "{kind}");
    }
}

/// The FIFO is empty at the inspection, and packets come before the next call.
#[test]
fn packets_that_come_to_an_empty_fifo_stay_apart() {
    let name = "packets_that_come_to_an_empty_fifo_stay_apart";
    let Some(_dog) = splices(name) else {
        return;
    };
    // The packets come before one of these calls.
    if testkit::needs::missing(name, &[testkit::needs::Need::Vmsplice]) {
        return;
    }
    drop(acquire(default_capacity()));
    let (reader, writer) = testkit::obstacle::fifo().unwrap();
    rustix::fs::fcntl_setfl(&writer, OFlags::DIRECT).unwrap();
    let whole = ReadMode {
        is_unasked: true,
        is_named: true,
        ..mode(true, true)
    };
    let (mut first, mut into, mut come) = (None, vec![0; 1 << 16], false);
    let body = || first = Some(PacketReader::default().read(reader.as_fd(), &mut into, whole));
    let writes = || {
        if !std::mem::replace(&mut come, true) {
            for packet in [[7; 10], [8; 10]] {
                rustix::io::write(&writer, &packet).unwrap();
            }
        }
    };
    let calls = [libc::SYS_splice, libc::SYS_vmsplice];
    let Some(held) = testkit::midst::at_each(&calls, body, writes) else {
        return testkit::skip::report(name, "calls of another thread cannot be held");
    };
    assert!(held > 0);
    assert_eq!(first, Some(Err(Errno::EAGAIN)));
    for packet in [7, 8] {
        let got = PacketReader::default().read(reader.as_fd(), &mut into, whole);
        assert_eq!(got, Ok(10));
        assert_eq!(into[..10], [packet; 10]);
    }
}

/// Another reader takes all that was there, and a stream with a packet behind
/// it comes, before any of the calls.
#[test]
fn a_packet_behind_a_stream_that_has_come_is_read_whole() {
    let _only = testkit::child::without_children();
    use rustix::fs::{OFlags, fcntl_setfl};
    let name = "a_packet_behind_a_stream_that_has_come_is_read_whole";
    let Some(_dog) = splices(name) else {
        return;
    };
    drop(acquire(default_capacity()));
    let calls = [libc::SYS_read, libc::SYS_preadv2, libc::SYS_splice];
    for (there, length) in [(5000, 9000), (9000, 9000), (9000, 1 << 16), (10, 5000)] {
        for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
            let case = format!("{there} {length} {may_wait} {whole}");
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&writer, &vec![1; there]).unwrap();
            let stream = there.min(length).max(1000) - 900;
            let (mut told, mut into, mut taken) = (None, vec![0; length], false);
            let body = || {
                let mut packet_reader = PacketReader::default();
                told = Some(packet_reader.read(reader.as_fd(), &mut into, mode(may_wait, whole)));
            };
            let others = || {
                if !std::mem::replace(&mut taken, true) {
                    assert_eq!(rustix::io::read(&reader, &mut vec![0; there]), Ok(there));
                    rustix::io::write(&writer, &vec![7; stream]).unwrap();
                    fcntl_setfl(&writer, OFlags::DIRECT).unwrap();
                    rustix::io::write(&writer, &[7; 4096]).unwrap();
                }
            };
            let Some(held) = testkit::midst::at_each(&calls, body, others) else {
                return testkit::skip::report(name, "calls of another thread cannot be held");
            };
            assert!(held > 0, "{case}");
            drop(writer);
            let mut all = told.unwrap().unwrap();
            while let Ok(more @ 1..) = rustix::io::read(&reader, &mut vec![0; 1 << 16]) {
                all += more;
            }
            assert_eq!(all, stream + 4096, "{case}");
        }
    }
}

/// Without `splice(2)`: a part of a packet, also by a descriptor that is open for
/// writing too, which writes nothing.
#[test]
fn a_part_of_a_packet_leaves_the_rest() {
    use rustix::fs::{OFlags, fcntl_setfl};
    let name = "a_part_of_a_packet_leaves_the_rest";
    if testkit::needs::missing(name, &[testkit::needs::Need::Vmsplice]) {
        return;
    }
    for both in [false, true] {
        for (may_wait, whole) in [(true, true), (true, false), (false, true), (false, false)] {
            let (reader, writer) = testkit::obstacle::fifo().unwrap();
            fcntl_setfl(&writer, OFlags::DIRECT).unwrap();
            for byte in 1..=3 {
                rustix::io::write(&writer, &[byte; 1000]).unwrap();
            }
            let source = match both {
                true => reopen(reader.as_fd(), OFlags::RDWR).unwrap(),
                false => reader.try_clone().unwrap(),
            };
            let (mut all, mut into) = (Vec::new(), [0; 700]);
            testkit::refuse::apart(|| {
                testkit::refuse::refuse(&[libc::SYS_splice], libc::EPERM);
                let mut packet_reader = PacketReader::default();
                let mode = ReadMode {
                    is_named: true,
                    ..mode(may_wait, whole)
                };
                while all.len() < 3000 {
                    let got = packet_reader.read(source.as_fd(), &mut into, mode).unwrap();
                    // No more than the packet that is next.
                    assert!(!whole || got == [700, 300][usize::from(all.len() % 1000 > 0)]);
                    all.extend_from_slice(&into[..got]);
                }
            });
            let expected: Vec<u8> = (1..=3).flat_map(|byte| [byte; 1000]).collect();
            assert!(all == expected, "{both} {may_wait} {whole}");
            assert_eq!(unsent(reader.as_fd()), Ok(0), "{both} {may_wait} {whole}");
        }
    }
}

/// A socket's pages may be larger than those that a pipe's capacity is counted in: a
/// pipe holds more than that, and a packet behind it.
#[test]
fn a_packet_behind_large_pages_is_whole() {
    let _only = testkit::child::without_children();
    use rustix::pipe::{SpliceFlags, splice};
    use std::io::Write;
    let Some(_dog) = splices("a_packet_behind_large_pages_is_whole") else {
        return;
    };
    for case in 0..8 {
        let [may_wait, whole, tees] = [1, 2, 4].map(|bit| case & bit > 0);
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let room = capacity(reader.as_fd());
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = room - 100;
        // A pipe of large pages holds more than a socket by default.
        rustix::net::sockopt::set_socket_send_buffer_size(&far, 2 * room).unwrap();
        far.write_all(&vec![7; stream]).unwrap();
        let mut there = 0;
        while there < stream {
            let flags = SpliceFlags::NONBLOCK;
            match splice(&near, None, &writer, None, stream - there, flags) {
                Ok(n @ 1..) => there += n,
                done => panic!("{there}: {done:?}"),
            }
        }
        rustix::fs::fcntl_setfl(
            &writer,
            rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::NONBLOCK,
        )
        .unwrap();
        if rustix::io::write(&writer, &[7; 4096]) != Ok(4096) {
            return testkit::skip::report("packet_reader", "a socket's pages are no larger here");
        }
        drop(writer);
        let mut into = vec![0; room];
        let all = testkit::refuse::apart(|| {
            if !tees {
                testkit::refuse::refuse(&[libc::SYS_tee], libc::EPERM);
            }
            let (mut packet_reader, mut all) = (PacketReader::default(), 0);
            loop {
                match packet_reader.read(reader.as_fd(), &mut into, mode(may_wait, whole)) {
                    Ok(0) => break all,
                    got => all += got.unwrap(),
                }
            }
        });
        assert_eq!(all, stream + 4096, "{may_wait} {whole} {tees}");
    }
}
