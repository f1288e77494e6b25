//! The owner of a control descriptor that is linked with a peer.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use cordboard::cue::{Command, Cue, Limit, Record, State, Status};
use cordboard::{Ended, Errno};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::pattern::noise;

use super::common::{alone, watchdog};
use super::steps::{Answers, bytes_of, done, file_with, flood, next, send, status};

/// A control descriptor from one pipe to another, and a peer that is linked with it.
struct Linked {
    cue: Cue,
    _link: Cue,
    peer: UnixStream,
    /// The other ends of the pipes.
    feed: PipeWriter,
    end: PipeReader,
}

impl Linked {
    fn new() -> Linked {
        let (peer, ours) = UnixStream::pair().unwrap();
        let (source, feed) = std::io::pipe().unwrap();
        let (end, sink) = std::io::pipe().unwrap();
        let cue = Cue::new(&source, &sink).unwrap();
        let link = Cue::new(&ours, &cue).unwrap();
        send(&link, &[Command::WriteToEnd]);
        Linked {
            cue,
            _link: link,
            peer,
            feed,
            end,
        }
    }
}

fn is_status(record: &Record) -> bool {
    matches!(record, Record::Status(_))
}

/// The rest of an incomplete command would be the owner's next one.
#[test]
fn an_incomplete_command_of_a_peer_swallows_none_of_the_owner() {
    let _dog = watchdog("an_incomplete_command_of_a_peer_swallows_none_of_the_owner");
    // A rate without its operand, and an unknown command of 32 words.
    for word in [0x4301_0007_u32, 0x4320_0001] {
        let mut linked = Linked::new();
        let mut bytes = bytes_of(&[Command::Status]);
        bytes.extend(word.to_le_bytes());
        linked.peer.write_all(&bytes).unwrap();
        Answers::new(&linked.peer).until(is_status);
        send(&linked.cue, &[Command::Pause]);
        let status = status(&mut linked.cue);
        assert_eq!(status.state, State::Paused, "{word:x}");
        assert_eq!(status.schedule, cordboard::Schedule::Unlimited);
    }
}

/// A peer that sends commands and reads no records does not hold up the owner's, and neither
/// does one that fills the queue.
#[test]
fn a_peer_that_reads_nothing_does_not_hold_up_the_owner() {
    let _dog = watchdog("a_peer_that_reads_nothing_does_not_hold_up_the_owner");
    for command in [Command::Status, Command::Write(1)] {
        let mut linked = Linked::new();
        linked.peer.set_nonblocking(true).unwrap();
        let commands = [&[Command::WriteToEnd], &[command; 100][..]].concat();
        flood(&linked.peer, &commands, 100);
        while status(&mut linked.cue).transfer != 1 {}
        linked.feed.write_all(b"five!").unwrap();
        linked.end.read_exact(&mut [0; 5]).unwrap();
        // The transfer of the peer ends, and its records stay with the peer.
        send(&linked.cue, &[Command::Pause, Command::Cancel]);
        let runs = |status: Status| status.transfer == 1 && status.path.is_some();
        while runs(status(&mut linked.cue)) {}
        send(&linked.cue, &[Command::Progress(0), Command::Status]);
        assert!(matches!(next(&mut linked.cue), Record::Status(_)));
    }
}

/// A peer forbids itself all commands. A mask of the owner applies to both.
#[test]
fn a_peer_cannot_forbid_commands_of_the_owner() {
    let _dog = watchdog("a_peer_cannot_forbid_commands_of_the_owner");
    let mut linked = Linked::new();
    let mut answers = Answers::new(linked.peer.try_clone().unwrap());
    let forbid = |mask| Command::Limit(Limit::Commands(mask));
    let refused = |command| Record::refused(command, Errno::EPERM);
    let mut answer = |commands: &[Command]| {
        linked.peer.write_all(&bytes_of(commands)).unwrap();
        answers.next().unwrap()
    };
    send(&linked.cue, &[forbid(!Command::Rate(1).bit())]);
    status(&mut linked.cue);
    let rate = Command::Rate(7);
    assert_eq!(answer(&[rate]), refused(rate));
    assert_eq!(answer(&[Command::WriteToEnd]), Record::Started(1));
    let status_of_peer = answer(&[forbid(0), Command::Status]);
    assert_eq!(status_of_peer, refused(Command::Status));
    send(&linked.cue, &[rate, Command::Pause]);
    assert_eq!(next(&mut linked.cue), refused(rate));
    assert_eq!(status(&mut linked.cue).state, State::Paused);
    send(&linked.cue, &[Command::Cancel]);
    let Some(Record::Done(done)) = answers.next() else {
        panic!("not done");
    };
    assert_eq!(done.ended, Ended::Cancelled);
    // Another link has no mask yet.
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let link = Cue::new(&ours, &linked.cue).unwrap();
    send(&link, &[Command::WriteToEnd]);
    peer.write_all(&bytes_of(&[Command::Status])).unwrap();
    Answers::new(&peer).until(is_status);
}

/// Offsets and blocks apply to the transfers of the side that has sent them, and so do the
/// records.
#[test]
fn the_next_transfer_is_that_of_the_same_side() {
    let _dog = watchdog("the_next_transfer_is_that_of_the_same_side");
    let data = noise(3000);
    let (source, sink) = (file_with(&data), file_with(b""));
    let mut cue = Cue::new(&source, &sink).unwrap();
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let link = Cue::new(&ours, &cue).unwrap();
    send(&link, &[Command::WriteToEnd]);
    let offsets = [Command::SourceOffset(1000), Command::SinkOffset(5000)];
    let bytes = bytes_of(&[&offsets[..], &[Command::Status]].concat());
    peer.write_all(&bytes).unwrap();
    let mut answers = Answers::new(peer.try_clone().unwrap());
    answers.until(is_status);
    send(&cue, &[Command::Write(1000)]);
    assert_eq!(next(&mut cue), Record::Started(1));
    assert_eq!(done(&mut cue).written, 1000);
    peer.write_all(&bytes_of(&[Command::Write(500)])).unwrap();
    answers.until(|record| matches!(record, Record::Done(_)));
    let mut copy = vec![0; 6000];
    assert_eq!(rustix::io::pread(&sink, &mut copy, 0).unwrap(), 5500);
    assert!(copy[..1000] == data[..1000] && copy[5000..5500] == data[1000..1500]);
}

/// The owner has closed its descriptors, and the peer leaves a transfer that no process can
/// end any more, because it is paused or its source does not end.
#[test]
fn what_a_peer_leaves_behind_is_cancelled() {
    let _dog = watchdog("what_a_peer_leaves_behind_is_cancelled");
    let limit = Command::Limit(Limit::Bytes(1 << 40));
    for commands in [
        &[Command::Pause, Command::Write(5), Command::WriteToEnd][..],
        &[limit, Command::WriteToEnd],
    ] {
        let (peer, ours) = UnixStream::pair().unwrap();
        let half_close = |peer: &UnixStream| peer.shutdown(Shutdown::Write).unwrap();
        leave(commands, peer, &ours, half_close);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        let half_close = |peer: &TcpStream| peer.shutdown(Shutdown::Write).unwrap();
        leave(commands, peer, &ours, half_close);
    }
}

/// The peer sends these commands, and closes its end for writing.
fn leave<S>(commands: &[Command], mut peer: S, ours: &S, half_close: impl Fn(&S))
where
    S: Read + Write + AsFd,
{
    let (source, _feed) = std::io::pipe().unwrap();
    let (mut end, sink) = std::io::pipe().unwrap();
    let cue = Cue::new(&source, &sink).unwrap();
    let link = Cue::new(ours, &cue).unwrap();
    send(&link, &[Command::WriteToEnd]);
    drop((source, sink, cue, link));
    peer.write_all(&bytes_of(commands)).unwrap();
    Answers::new(&mut peer).until(|record| matches!(record, Record::Started(_)));
    half_close(&peer);
    // The sink is closed.
    end.read_to_end(&mut Vec::new()).unwrap();
}

/// A link that passes a number of bytes returns the records of all of them.
#[test]
fn a_link_of_some_bytes_returns_all_records() {
    let _dog = watchdog("a_link_of_some_bytes_returns_all_records");
    let (mut peer, ours) = UnixStream::pair().unwrap();
    let (source, sink) = (file_with(&noise(1000)), file_with(b""));
    let cue = Cue::new(&source, &sink).unwrap();
    let link = Cue::new(&ours, &cue).unwrap();
    let commands = bytes_of(&[Command::Write(10); 20]);
    send(&link, &[Command::Write(commands.len() as u64)]);
    drop((ours, cue, link));
    peer.write_all(&commands).unwrap();
    let mut answers = Answers::new(peer);
    let records = std::iter::from_fn(|| answers.next());
    let ends = records.filter(|record| matches!(record, Record::Done(_)));
    assert_eq!(ends.count(), 20);
}

/// Bytes that a failed transfer has left go where it has ended, before the offset of the next
/// one applies.
#[test]
fn what_is_left_over_keeps_its_place() {
    if !alone!() {
        return;
    }
    let _dog = watchdog("what_is_left_over_keeps_its_place");
    let data = noise(10_000);
    let (source, mut feed) = UnixStream::pair().unwrap();
    let sink = file_with(b"");
    let mut cue = Cue::new(&source, &sink).unwrap();
    feed.write_all(&data[..9000]).unwrap();
    let before = getrlimit(Resource::Fsize);
    let current = Some(5000);
    setrlimit(Resource::Fsize, Rlimit { current, ..before }).unwrap();
    send(&cue, &[Command::SinkOffset(1000), Command::Write(9000)]);
    let failed = done(&mut cue);
    assert_eq!(
        (failed.ended, failed.errno, failed.written),
        (Ended::Error, Some(Errno::EFBIG), 4000)
    );
    assert!(failed.stranded > 0);
    setrlimit(Resource::Fsize, before).unwrap();
    feed.write_all(&data[9000..]).unwrap();
    let left = 6000 - failed.stranded;
    send(&cue, &[Command::SinkOffset(0), Command::Write(left)]);
    let rest = done(&mut cue);
    assert_eq!(
        (rest.ended, rest.written),
        (Ended::Size, left + failed.stranded)
    );
    let mut copy = vec![0; 20_000];
    let bytes = rustix::io::pread(&sink, &mut copy, 0).unwrap();
    let end = 5000 + failed.stranded as usize;
    assert_eq!(bytes, end.max(left as usize));
    let taken = 4000 + failed.stranded as usize;
    assert!(copy[1000.max(left as usize)..end] == data[left.saturating_sub(1000) as usize..taken]);
    assert!(copy[..left as usize] == data[taken..]);
}
