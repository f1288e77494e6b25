//! Stages that change the bytes in front of and behind devices, whose reads and writes may be
//! records.

use super::*;
use cordboard::stage::{Fault, Finished, Passed, Transform};
use testkit::tun::Tun;

/// Makes several equal bytes of the first of several.
struct Repeat {
    taken: usize,
    made: usize,
}

impl Transform for Repeat {
    fn name(&self) -> &'static str {
        "repeat"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let taken = input.chunks_exact(self.taken);
        let made = output.chunks_exact_mut(self.made);
        let times = taken.zip(made).map(|(from, to)| to.fill(from[0])).count();
        Ok(Passed {
            taken: times * self.taken,
            made: times * self.made,
        })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        Ok(Finished {
            made: 0,
            done: true,
        })
    }

    fn expands(&self) -> bool {
        true
    }
}

/// A write to this file is a new name of the thread.
#[test]
fn a_block_of_output_is_one_write_to_a_pseudo_file() {
    let name = "a_block_of_output_is_one_write_to_a_pseudo_file";
    let _dog = watchdog(name);
    const COMM: &str = "/proc/thread-self/comm";
    let thread = std::thread::spawn(move || {
        let Ok(sink) = File::options().write(true).open(COMM) else {
            return testkit::skip::report(name, "no procfs");
        };
        let blocks = Request {
            block: NonZeroUsize::new(4),
            ..any()
        };
        // Less than a block at a time, a block, and more.
        for (taken, made, input, last) in [
            (2, 1, &b"a.b.c.d.e.f.g."[..], "efg"),
            (1, 1, b"abcdefg", "efg"),
            (1, 2, b"abcdefg", "gg"),
        ] {
            let source = file_with(input);
            let transfer = Transfer::new(source.as_fd(), sink.as_fd(), blocks.clone()).unwrap();
            let stage = Stage::transforming(Repeat { taken, made });
            let report = transfer.stage(stage).unwrap().run().report;
            assert_eq!(report.ended, Ended::Eof, "{report:?}");
            assert_eq!(report.written, (input.len() / taken * made) as u64);
            assert_eq!(std::fs::read_to_string(COMM).unwrap().trim_end(), last);
        }
    });
    thread.join().unwrap();
}

/// The room for its output is not reduced to an odd number of bytes by the part of a block that
/// waits for more.
#[test]
fn a_stage_has_the_same_room_behind_a_part_of_a_block() {
    let name = "a_stage_has_the_same_room_behind_a_part_of_a_block";
    let _dog = watchdog(name);
    let thread = std::thread::spawn(move || {
        let Ok(sink) = File::options().write(true).open("/proc/thread-self/comm") else {
            return testkit::skip::report(name, "no procfs");
        };
        let source = file_with(&[b'a'; 256 << 10]);
        let blocks = Request {
            // Longer than a read, and odd.
            block: NonZeroUsize::new((128 << 10) + 1),
            ..any()
        };
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), blocks).unwrap();
        let stage = Stage::transforming(Repeat { taken: 1, made: 2 });
        let report = transfer.stage(stage).unwrap().run().report;
        assert_eq!(
            (report.ended, report.errno),
            (Ended::Eof, None),
            "{report:?}"
        );
        assert_eq!(report.written, 512 << 10);
    });
    thread.join().unwrap();
}

/// A read that is shorter than a packet loses the rest of it.
#[test]
fn a_packet_of_a_device_is_read_whole() {
    const LENGTH: usize = 9000;
    let name = "a_packet_of_a_device_is_read_whole";
    let _dog = watchdog(name);
    let tun = match Tun::new().and_then(|tun| tun.carrying(LENGTH).map(|()| tun)) {
        Ok(tun) => tun,
        Err(error) => return testkit::skip::report(name, &error.to_string()),
    };
    // The driver checks only the version, in the first byte.
    let mut packet = pattern(LENGTH);
    packet[0] = 0x45;
    if let Err(error) = tun.send(&vec![packet.clone(); 8]) {
        return testkit::skip::report(name, &error.to_string());
    }
    let sink = file_with(b"");
    let request = Request {
        size: (2 * LENGTH as u64).into(),
        ..any()
    };
    let transfer = Transfer::new(tun.fd.as_fd(), sink.as_fd(), request).unwrap();
    let stage = Stage::transforming(Repeat { taken: 1, made: 1 });
    let report = transfer.stage(stage).unwrap().run().report;
    assert_eq!(report.ended, Ended::Size, "{report:?}");
    // The kernel sends packets of its own (IPv6).
    let got = content(&sink);
    assert!(got.windows(LENGTH).any(|bytes| bytes == packet));
}
