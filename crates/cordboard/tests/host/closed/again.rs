//! A host that closes all descriptors, and then puts the transfer's files under the
//! same numbers again, by duplicating its own descriptors or by opening the files.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use cordboard::{Engine, Errno, Refusal};
use testkit::child;

use super::numbers;
use crate::common::{self, any, others_asleep, watchdog};

/// Both files of a waiting transfer, the name of the file that the host opens again,
/// and the descriptors that keep the transfer waiting.
type Silent = ([OwnedFd; 2], Option<tempfile::NamedTempFile>, Vec<OwnedFd>);

fn pipes() -> Silent {
    let (source, feed) = std::io::pipe().unwrap();
    let (end, sink) = std::io::pipe().unwrap();
    let ends = [source.into(), sink.into()];
    (ends, None, vec![feed.into(), end.into()])
}

fn sockets() -> Silent {
    let (source, feed) = UnixStream::pair().unwrap();
    let (end, sink) = UnixStream::pair().unwrap();
    let ends = [source.into(), sink.into()];
    (ends, None, vec![feed.into(), end.into()])
}

fn into_a_file() -> Silent {
    let (source, feed) = std::io::pipe().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let sink = file.reopen().unwrap();
    let ends = [source.into(), sink.into()];
    (ends, Some(file), vec![feed.into()])
}

fn out_of_a_file() -> Silent {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    let source = file.reopen().unwrap();
    let (end, sink) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&sink, true).unwrap();
    while rustix::io::write(&sink, &[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&sink, false).unwrap();
    let ends = [source.into(), sink.into()];
    (ends, Some(file), vec![end.into()])
}

/// The file that the host opens again.
#[derive(Debug, Clone, Copy)]
enum Again {
    Source,
    Sink,
    Both,
}

/// Returns whether everything that the host has opened is still open.
fn stays_open(silent: fn() -> Silent, again: Again) -> bool {
    let (ends, file, rest) = silent();
    let inodes = ends.each_ref().map(|fd| child::inode(fd.as_raw_fd()));
    let before = numbers();
    let running = cordboard::start(&ends[0], &ends[1], any()).unwrap();
    others_asleep();
    // The transfer's descriptor number of each.
    let own = [0, 1].map(|side: usize| {
        let is_own =
            |number: &RawFd| child::inode(*number) == inodes[side] && !before.contains(number);
        let all: Vec<RawFd> = numbers().into_iter().filter(is_own).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    });
    // Below the numbers that are closed.
    for (end, low) in ends.iter().zip(0..) {
        child::copy_to(end.as_raw_fd(), low, false);
    }
    let name = file.as_ref().map(|file| file.path().to_owned());
    std::mem::forget((ends, file, rest));
    child::close_from(3);
    let sides: &[usize] = match again {
        Again::Source => &[0],
        Again::Sink => &[1],
        Again::Both => &[0, 1],
    };
    for &side in sides {
        let opened = (name.as_ref())
            .map(|name| File::open(name).unwrap())
            .filter(|file| child::inode(file.as_raw_fd()) == inodes[side]);
        match opened {
            // It already has the number.
            Some(file) if file.as_raw_fd() == own[side] => std::mem::forget(file),
            Some(file) => child::copy_to(file.as_raw_fd(), own[side], true),
            None => child::copy_to(side as RawFd, own[side], true),
        }
    }
    running.cancel();
    assert_eq!(running.wait().report.errno, Some(Errno::EBADF));
    (sides.iter()).all(|side| child::inode(own[*side]) == inodes[*side])
}

/// Only the engine's missing descriptors show that these numbers are no longer the
/// transfer's.
#[test]
fn what_is_the_transfers_file_again_stays_open() {
    let name = "what_is_the_transfers_file_again_stays_open";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    let kinds: [fn() -> Silent; 4] = [pipes, sockets, into_a_file, out_of_a_file];
    let mut closed = Vec::new();
    for (kind, silent) in kinds.into_iter().enumerate() {
        for again in [Again::Source, Again::Sink, Again::Both] {
            if !child::in_a_child(|| stays_open(silent, again)) {
                closed.push((kind, again));
            }
        }
    }
    assert!(closed.is_empty(), "{closed:?}");
}

/// The host closes everything after it has prepared a transfer and before it starts it,
/// and then has files of its own under the transfer's numbers.
#[test]
fn a_transfer_that_was_prepared_before_is_refused() {
    let name = "a_transfer_that_was_prepared_before_is_refused";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    for has_own_engine in [false, true] {
        assert!(child::in_a_child(|| {
            let (ends, _, rest) = pipes();
            // The engine of the process.
            let running = cordboard::start(&ends[0], &ends[1], any()).unwrap();
            let engine = has_own_engine.then(|| Engine::new(Default::default()).unwrap());
            let own = ends.each_ref().map(|end| end.as_raw_fd());
            let [source, sink] = ends;
            let transfer = cordboard::Transfer::owning(source, sink, any()).unwrap();
            let null = File::open("/dev/null").unwrap();
            child::copy_to(null.as_raw_fd(), 0, false);
            std::mem::forget((null, rest));
            child::close_from(3);
            for number in own {
                child::copy_to(0, number, true);
            }
            let started = match &engine {
                Some(engine) => engine.start(transfer),
                None => transfer.start(),
            };
            let errno = Errno::EBADF;
            let refused = started.err().and_then(|failure| failure.refusal);
            std::mem::forget((running, engine));
            let stays = own
                .iter()
                .all(|number| child::inode(*number) == child::inode(0));
            refused == Some(Refusal::NoEngine { errno }) && stays
        }));
    }
}

/// The host closes only a transfer's two descriptors, of a running engine, and opens
/// one of them again.
#[test]
fn what_is_one_of_the_transfers_files_again_stays_open() {
    let name = "what_is_one_of_the_transfers_files_again_stays_open";
    let _dog = watchdog(name);
    if !common::alone!() {
        return;
    }
    for side in [0, 1] {
        assert!(child::in_a_child(|| {
            let (ends, _, rest) = pipes();
            let [source, sink] = ends;
            let own = [source.as_raw_fd(), sink.as_raw_fd()];
            let transfer = cordboard::Transfer::owning(source, sink, any()).unwrap();
            let running = transfer.start().unwrap();
            others_asleep();
            let inode = child::inode(own[side]);
            child::copy_to(own[side], 0, false);
            let null = File::open("/dev/null").unwrap();
            child::copy_to(null.as_raw_fd(), own[1 - side], true);
            // The host owns the duplicate from here on.
            child::copy_to(0, own[side], true);
            running.cancel();
            assert_eq!(running.wait().report.errno, Some(Errno::EBADF));
            std::mem::forget(rest);
            child::inode(own[side]) == inode && child::inode(own[1 - side]).is_some()
        }));
    }
}
