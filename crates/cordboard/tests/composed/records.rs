//! Devices and pseudo-files, to which each write is a record.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use cordboard::{Buffered, Ended, FanIn, FanOut, Request};

use crate::buffer::runs::until;
use crate::common::{file_with, watchdog};

const COMPOSITIONS: [&str; 3] = ["fan-in", "fan-out", "buffer"];

/// Moves a pipe to a sink by way of a private pipe, in blocks of this length. Checks that all
/// was written.
fn compose(composition: &str, source: &OwnedFd, sink: &OwnedFd, block: usize) {
    let blocks = Request {
        block: NonZeroUsize::new(block),
        ..Request::default()
    };
    let (from, to) = (source.as_fd(), sink.as_fd());
    let (ended, read, written) = match composition {
        "buffer" => {
            let buffered = Buffered::new(from, to, 1, blocks).unwrap();
            assert_eq!(buffered.size(), block as u64);
            let outcome = buffered.run().unwrap();
            (outcome.ended, outcome.read, outcome.written)
        }
        "fan-in" => {
            let outcome = FanIn::new(&[from], to, blocks).unwrap().run().unwrap();
            (outcome.ended, outcome.read, outcome.written)
        }
        _ => {
            let other = file_with(b"");
            let sinks = [to, other.as_fd()];
            let outcome = FanOut::new(from, &sinks, blocks).unwrap().run().unwrap();
            (outcome.ended, outcome.read, outcome.sinks[0].written)
        }
    };
    assert_eq!((ended, written), (Ended::Eof, read), "{composition}");
}

/// Moves bytes that arrive in pieces. `meanwhile` is called after each piece has been read, with
/// their number.
fn in_pieces(
    composition: &str,
    sink: &OwnedFd,
    block: usize,
    pieces: &[&[u8]],
    mut meanwhile: impl FnMut(usize),
) {
    let (source, mut feed) = std::io::pipe().unwrap();
    let source = OwnedFd::from(source);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| compose(composition, &source, sink, block));
        for (index, piece) in pieces.iter().enumerate() {
            feed.write_all(piece).unwrap();
            // A transfer that has ended reads nothing more.
            let is_read = || running.is_finished() || rustix::io::ioctl_fionread(&source) == Ok(0);
            until("the piece is read", is_read);
            for _ in 0..100 {
                std::thread::yield_now();
            }
            meanwhile(index + 1);
        }
        drop(feed);
        running.join().unwrap();
    });
}

/// The private pipe holds a part of the block when it is read.
#[test]
fn a_block_is_one_write_to_a_pseudo_file() {
    let name = "a_block_is_one_write_to_a_pseudo_file";
    let _dog = watchdog(name);
    // A write to this file is a new name of the thread.
    let thread = std::thread::spawn(move || {
        let open = File::options().write(true).open("/proc/thread-self/comm");
        let Ok(sink) = open else {
            return testkit::skip::report(name, "no procfs");
        };
        let sink = OwnedFd::from(sink);
        let comm = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        for composition in COMPOSITIONS {
            in_pieces(composition, &sink, 4, &[b"ab", b"cd", b"efg"], |pieces| {
                let its = comm();
                let parts = ["ab\n", "cd\n", "efg\n"];
                assert!(!parts.contains(&its.as_str()), "{composition}: {its}");
                if pieces > 1 {
                    until("the block is written", || comm() == "abcd\n");
                }
            });
            // The last one is shorter.
            assert_eq!(comm(), "efg\n", "{composition}");
            rustix::thread::set_name(c"next").unwrap();
        }
    });
    thread.join().unwrap();
}

#[test]
fn a_block_is_one_packet_of_a_device() {
    const LENGTH: usize = 9000;
    let name = "a_block_is_one_packet_of_a_device";
    let _dog = watchdog(name);
    let tun = match testkit::tun::Tun::new() {
        Ok(tun) => tun,
        Err(error) => return testkit::skip::report(name, &error.to_string()),
    };
    // The driver checks only the version, in the first byte.
    let packets = [vec![0x45; LENGTH], vec![0x45; LENGTH]].concat();
    let pieces = [&packets[..4000], &packets[4000..10_000], &packets[10_000..]];
    let mut expected = tun.received().unwrap();
    for composition in COMPOSITIONS {
        in_pieces(composition, &tun.fd, LENGTH, &pieces, |_| {});
        expected.packets += 2;
        expected.bytes += packets.len() as u64;
        assert_eq!(tun.received().unwrap(), expected, "{composition}");
    }
}
