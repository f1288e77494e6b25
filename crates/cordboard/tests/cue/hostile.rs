//! Peers that send garbage, floods, and never read.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Cue, Limit, Record, State};
use cordboard::{Aim, Ended, Errno, Schedule};
use testkit::allocated::in_use;
use testkit::pattern::noise;

use super::common::{alone, most, watchdog};
use super::steps::{Answers, bytes_of, done, file_with, flood, next, send, status};

const LENGTH: usize = 200_000;
const LIMIT: u64 = 50_000;
const START: u64 = 1000;
const END: u64 = 100_000;
/// Bytes inside and outside the range.
const INSIDE: u8 = 1;
const OUTSIDE: u8 = 2;

/// The block of the limit of blocks.
const BLOCK: u32 = 4096;

/// The limits of the speed: all bytes together take 50 ms or more.
fn limits() -> [Schedule; 2] {
    let rest = Duration::from_millis(5);
    [Schedule::rate(1_000_000), Schedule::blocks(1, rest)]
}

/// A limited transfer that is steered by what `peer` sends: it never moves more than
/// the limits, or bytes outside the range, or any bytes earlier than this one permits, and the
/// process continues to serve others. Returns the number of bytes that have reached the sink when
/// its service has ended.
fn is_withstood(limit: Schedule, peer: impl FnOnce(UnixStream)) -> usize {
    let mut data = vec![OUTSIDE; LENGTH];
    data[START as usize..END as usize].fill(INSIDE);
    let source = file_with(&data);
    let (mut out, sink) = UnixStream::pair().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    drop(sink);
    let (start, end) = (START, END);
    let speed = match limit {
        Schedule::Blocks { count, rest } => Limit::Schedule {
            count: count.get(),
            rest: rest.as_millis() as u32,
        },
        Schedule::Rate(rate) => Limit::Rate(rate.get()),
        _ => unreachable!("{limit:?} is no limit"),
    };
    send(
        &cue,
        &[
            Command::Limit(Limit::Bytes(LIMIT)),
            Command::Limit(Limit::Range { start, end }),
            Command::Block(BLOCK),
            Command::Limit(speed),
        ],
    );
    let (theirs, ours) = UnixStream::pair().unwrap();
    let link = Cue::new(&ours, &cue).unwrap();
    drop((ours, cue));
    let begin = Instant::now();
    send(&link, &[Command::WriteToEnd]);
    drop(link);
    let reader = std::thread::spawn(move || {
        let (mut moved, mut early) = (Vec::new(), None);
        let mut piece = vec![0; LENGTH];
        loop {
            // The end of file means that the service has closed the sink.
            let n = out.read(&mut piece).unwrap();
            moved.extend_from_slice(&piece[..n]);
            let at = begin.elapsed();
            if moved.len() as u64 > most(limit, BLOCK.into(), at) {
                early.get_or_insert((moved.len(), at));
            }
            if n == 0 {
                return (moved, early);
            }
        }
    });
    peer(theirs);
    // Others are served.
    let (mut end, other) = std::io::pipe().unwrap();
    let mut well = Cue::new(&source, &other).unwrap();
    assert_eq!(status(&mut well).state, State::Idle);
    send(
        &well,
        &[Command::SourceOffset(START - 3), Command::Write(6)],
    );
    let mut bytes = [0; 6];
    end.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [OUTSIDE, OUTSIDE, OUTSIDE, INSIDE, INSIDE, INSIDE]);
    let (moved, early) = reader.join().unwrap();
    assert_eq!(early, None, "too fast for {limit:?}");
    assert!(moved.len() as u64 <= LIMIT, "{}", moved.len());
    let is_inside = moved.iter().all(|byte| *byte == INSIDE);
    assert!(is_inside, "bytes outside the range");
    moved.len()
}

/// Commands for a faster transfer. None of them may have an effect beyond the limits.
fn faster(random: &mut fastrand::Rng) -> Command {
    match random.u8(..8) {
        0 => Command::Rate(0),
        1 => Command::Rate(random.u64(1 << 20..1 << 40)),
        2 => Command::Schedule { count: 0, rest: 0 },
        3 => Command::Schedule {
            count: random.u32(1..1 << 20),
            rest: random.u32(..3),
        },
        4 => Command::Auto(Aim::Throughput),
        5 => Command::Auto(Aim::share(random.u32(1..)).unwrap()),
        6 => Command::Limit(Limit::Rate(random.u64(1 << 20..1 << 40))),
        _ => Command::Limit(Limit::Schedule {
            count: random.u32(1..1 << 20),
            rest: 0,
        }),
    }
}

/// Random commands, random words and random bytes. Some cases have no random bytes that shift the
/// words behind them, no sink offsets, which the sink does not have, and no commands that end or
/// hold up transfers.
fn garbage(random: &mut fastrand::Rng) -> Vec<u8> {
    // A random schedule may rest for days, and a transfer with a size outlives its peer.
    let mut bytes = bytes_of(&[Command::Limit(Limit::Time(300))]);
    let (shifts, offsets, stops) = (random.bool(), random.bool(), random.bool());
    for _ in 0..random.usize(1..200) {
        match random.u8(..9) {
            0 => {
                bytes.extend((0..random.usize(1..50)).map(|_| random.u8(..)));
                let whole = bytes.len().next_multiple_of(4);
                bytes.resize(if shifts { bytes.len() } else { whole }, 0);
            }
            1 if stops => {
                let code = u32::from(random.u16(..25));
                let words = random.u32(..4);
                bytes.extend((0x4300_0000 | words << 16 | code).to_le_bytes());
                (0..words).for_each(|_| bytes.extend(random.u32(..).to_le_bytes()));
            }
            1 | 2 => Command::Write(random.u64(..LIMIT)).encode(&mut bytes),
            3 => Command::SourceOffset(random.u64(..2 * END)).encode(&mut bytes),
            4 if offsets => Command::SinkOffset(random.u64(..END)).encode(&mut bytes),
            4 => Command::WriteToEnd.encode(&mut bytes),
            5 => Command::Block(random.u32(..)).encode(&mut bytes),
            6 => Command::Limit(Limit::Bytes(random.u64(..))).encode(&mut bytes),
            7 => faster(random).encode(&mut bytes),
            _ if stops => [
                Command::Pause,
                Command::Resume,
                Command::Cancel,
                Command::Status,
            ][random.usize(..4)]
            .encode(&mut bytes),
            _ => Command::Write(random.u64(..LIMIT / 8)).encode(&mut bytes),
        }
    }
    bytes
}

/// With the same seeds in each run, and some new ones.
#[test]
fn garbage_moves_no_more_than_the_limits() {
    let (mut moved, mut rounds) = (0, 0);
    testkit::rounds::run("0\n1\n2\n3\n4", 10, |random| {
        rounds += 1;
        for limit in limits() {
            moved += is_withstood(limit, |peer| {
                let reads = random.bool();
                let mut reader = peer.try_clone().unwrap();
                let reader = std::thread::spawn(move || {
                    let mut all = Vec::new();
                    reads.then(|| reader.read_to_end(&mut all))
                });
                let bytes = garbage(random);
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let piece = random.usize(1..=rest.len());
                    // The service may have ended: EPIPE.
                    if (&peer).write_all(&rest[..piece]).is_err() {
                        break;
                    }
                    rest = &rest[piece..];
                }
                let _ = peer.shutdown(std::net::Shutdown::Both);
                let _ = reader.join().unwrap();
            });
        }
    });
    // Of one round, all transfers may have been refused.
    assert!(moved > 0 || rounds == 1);
}

/// A peer asks for more speed again and again, while all permitted bytes are moved, in one transfer
/// or in several.
#[test]
fn no_peer_is_faster_than_the_limits() {
    const EACH: u64 = LIMIT / 10;
    testkit::rounds::run("0", 1, |random| {
        for limit in limits() {
            for transfers in [vec![Command::WriteToEnd], vec![Command::Write(EACH); 10]] {
                let moved = is_withstood(limit, |mut peer| {
                    let first = [Command::SourceOffset(START), Command::Block(1 << 26)];
                    peer.write_all(&bytes_of(&first)).unwrap();
                    peer.write_all(&bytes_of(&transfers)).unwrap();
                    let mut answers = Answers::new(peer.try_clone().unwrap());
                    let mut written = 0;
                    while written < LIMIT {
                        let commands = [(); 10].map(|()| faster(random));
                        peer.write_all(&bytes_of(&commands)).unwrap();
                        let last = [Command::Pause, Command::Resume, Command::Status];
                        peer.write_all(&bytes_of(&last)).unwrap();
                        answers.until(|record| {
                            if let Record::Done(done) = record {
                                written += done.written;
                            }
                            matches!(record, Record::Status(_))
                        });
                    }
                });
                assert_eq!(moved as u64, LIMIT, "{limit:?} {transfers:?}");
            }
        }
    });
}

/// A peer that sends commands endlessly and reads no records is no longer read, and blocks
/// itself only.
#[test]
fn a_peer_that_reads_nothing_blocks_itself() {
    let _dog = watchdog("a_peer_that_reads_nothing_blocks_itself");
    is_withstood(limits()[0], |peer| {
        peer.set_nonblocking(true).unwrap();
        flood(&peer, &[Command::Status; 100], 1000);
    });
}

/// One byte at a time, and never a whole command.
#[test]
fn a_slow_drip_holds_nothing_up() {
    let _dog = watchdog("a_slow_drip_holds_nothing_up");
    is_withstood(limits()[0], |mut peer| {
        for byte in bytes_of(&[Command::Write(10)]).iter().take(7) {
            peer.write_all(&[*byte]).unwrap();
        }
    });
}

/// A peer sends records, which have no answer, without pause. The other control descriptors
/// are served, and the limit of the time applies to running and to later transfers.
#[test]
fn a_flood_holds_up_nothing() {
    let _dog = watchdog("a_flood_holds_up_nothing");
    let source = std::fs::File::open("/dev/zero").unwrap();
    let sink = std::fs::File::options().write(true).open("/dev/null");
    let sink = sink.unwrap();
    let mut cue = Cue::new(&source, &sink).unwrap();
    let peer = cue.as_fd().try_clone_to_owned().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Several threads: one may be delayed until the socket is empty.
        for _ in 0..3 {
            scope.spawn(|| {
                let records = 0x5200_0000_u32.to_le_bytes().repeat(1024);
                while !is_over.load(Ordering::Relaxed) {
                    rustix::io::write(&peer, &records).unwrap();
                }
            });
        }
        // In this order, and without the peer's bytes between: the time may have passed
        // before a later command is read.
        let limit = Command::Limit(Limit::Time(100));
        send(&cue, &[Command::WriteToEnd, limit]);
        let mut other = Cue::new(&source, &sink).unwrap();
        assert_eq!(status(&mut other).state, State::Idle);
        assert_eq!(done(&mut cue).ended, Ended::Cancelled);
        send(&cue, &[Command::Write(1)]);
        assert_eq!(
            next(&mut cue),
            Record::refused(Command::Write(1), Errno::EPERM)
        );
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Peers that send more than is carried out, and leave. The control descriptor has no owner left:
/// the sink is closed.
#[test]
fn a_peer_that_floods_and_leaves_keeps_nothing_open() {
    let _dog = watchdog("a_peer_that_floods_and_leaves_keeps_nothing_open");
    let behind = |first: Command| {
        let mut all = vec![Command::Write(1); 100];
        all[0] = first;
        all
    };
    for commands in [
        // Their answers have no room.
        vec![Command::Status; 100],
        // The queue is full, and paused.
        behind(Command::Pause),
        // The queue is full behind a transfer that does not end by itself.
        behind(Command::WriteToEnd),
    ] {
        for reads in [false, true] {
            let (source, feed) = std::io::pipe().unwrap();
            let (mut end, sink) = std::io::pipe().unwrap();
            let cue = Cue::new(&source, &sink).unwrap();
            let (theirs, ours) = UnixStream::pair().unwrap();
            let link = Cue::new(&ours, &cue).unwrap();
            send(&link, &[Command::WriteToEnd]);
            drop((ours, cue, link, source, sink));
            theirs.set_nonblocking(true).unwrap();
            // Each small command that has arrived is carried out.
            rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 4096).unwrap();
            flood(&theirs, &commands, 1000);
            if reads {
                while rustix::io::read(&theirs, &mut [0; 4096]).is_ok_and(|n| n > 0) {}
            }
            drop(theirs);
            // Transfers with a size are carried out.
            let feed = std::thread::spawn(move || {
                let _ = (&feed).write_all(&[1; 100_000]);
            });
            end.read_to_end(&mut Vec::new()).unwrap();
            drop(end);
            feed.join().unwrap();
        }
    }
}

/// The memory for a peer that floods is bounded, whatever it sends: a queue of transfers,
/// unread records, half a command, bytes that are no commands.
#[test]
fn a_flood_needs_little_memory() {
    let _dog = watchdog("a_flood_needs_little_memory");
    if !alone!() {
        return;
    }
    const PEERS: usize = 10;
    /// The commands and the records that wait, 1024 bytes of each, 32 transfers, and a
    /// transfer that runs.
    const EACH: usize = 24 << 10;
    let mut long = vec![Command::Block(1 << 20), Command::Write(1 << 40)];
    long.extend([Command::Pause, Command::Progress(10)]);
    let floods = [
        vec![Command::Status; 100],
        vec![Command::Write(1 << 40); 100],
        vec![Command::SinkOffset(1); 100],
        long,
        vec![Command::Limit(Limit::Bytes(1 << 40)); 100],
    ];
    let open = |commands: &[Command]| {
        let (source, feed) = std::io::pipe().unwrap();
        let (end, sink) = std::io::pipe().unwrap();
        let cue = Cue::new(&source, &sink).unwrap();
        let (peer, ours) = UnixStream::pair().unwrap();
        let link = Cue::new(&ours, &cue).unwrap();
        send(&link, &[Command::WriteToEnd]);
        peer.set_nonblocking(true).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&peer, 4096).unwrap();
        flood(&peer, commands, 1000);
        let garbage = noise(10_000);
        while rustix::io::write(&peer, &garbage[..1001]).is_ok() {}
        ((feed, end), (cue, link, peer))
    };
    // Starts the threads.
    let first = open(&floods[0]);
    // The memory of peers that leave is freed later, and would hide that of the next ones.
    let mut kept = vec![first];
    for commands in &floods {
        kept.reserve(PEERS);
        let before = in_use();
        kept.extend((0..PEERS).map(|_| open(commands)));
        let each = (in_use() - before) / PEERS;
        eprintln!("{:?}: {each} bytes for each peer", commands[0]);
        assert!(each <= EACH, "{:?}: {each}", commands[0]);
    }
}
