//! A child of `fork(2)` that has the private channels of a composition open.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Arc, Mutex};

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

/// What takes whole blocks.
enum Whole {
    /// A file with `O_DIRECT`.
    Direct(File),
    /// Datagrams of [`Whole::DATAGRAM`] bytes, which a thread receives.
    Datagrams(UnixDatagram, Arc<Mutex<Vec<u8>>>),
}

impl Whole {
    const DATAGRAM: usize = 3000;
    /// More than is left of a block or a datagram.
    const LEFT: usize = 8192;

    /// `None`: the file system has no direct I/O.
    fn all() -> Vec<Whole> {
        let folder = tempfile::tempdir().unwrap();
        let direct = File::options()
            .custom_flags(libc::O_DIRECT)
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("direct"));
        let (ours, peer) = UnixDatagram::pair().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&got);
        std::thread::spawn(move || {
            let mut bytes = [0; 2 * Whole::DATAGRAM];
            while let Ok(n) = peer.recv(&mut bytes) {
                received.lock().unwrap().extend_from_slice(&bytes[..n]);
                if n != Whole::DATAGRAM {
                    break;
                }
            }
        });
        let datagrams = Whole::Datagrams(ours, got);
        direct
            .ok()
            .map(Whole::Direct)
            .into_iter()
            .chain([datagrams])
            .collect()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Whole::Direct(file) => file.as_fd(),
            Whole::Datagrams(socket, _) => socket.as_fd(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Whole::Direct(file) => file.metadata().unwrap().len() as usize,
            Whole::Datagrams(_, got) => got.lock().unwrap().len(),
        }
    }

    fn content(&self) -> Vec<u8> {
        match self {
            Whole::Direct(file) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                content(&File::open(path).unwrap())
            }
            Whole::Datagrams(_, got) => got.lock().unwrap().clone(),
        }
    }
}

/// The end of the source ends it. Less than a block is left for the sink then.
fn ends_with_the_last_part(run: impl Fn(OwnedFd, BorrowedFd<'_>, Request) -> Ended + Sync) {
    let data = pattern(2 * HALF);
    for sink in Whole::all() {
        let request = Request {
            block: std::num::NonZero::new(Whole::DATAGRAM)
                .filter(|_| matches!(sink, Whole::Datagrams(..))),
            ..Request::default()
        };
        // A child has this socket too, but not its end.
        let (source, mut feed) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let (run, sink) = (&run, &sink);
            let running = scope.spawn(move || run(source.into(), sink.fd(), request));
            feed.write_all(&data[..HALF]).unwrap();
            runs::until("the first half", || sink.len() + Whole::LEFT > HALF);
            let child = Heir::fork();
            feed.write_all(&data[HALF..]).unwrap();
            feed.shutdown(Shutdown::Write).unwrap();
            assert_eq!(running.join().unwrap(), Ended::Eof);
            runs::until("the last datagram", || sink.len() == 2 * HALF);
            drop(child);
        });
        assert!(sink.content() == data);
    }
}

#[test]
fn a_child_keeps_no_last_part_of_a_block() {
    let _dog = watchdog("a_child_keeps_no_last_part_of_a_block");
    if !alone!() {
        return;
    }
    ends_with_the_last_part(|source, sink, request| {
        let other = file_with(b"");
        let sinks = [sink.try_clone_to_owned().unwrap(), other.into()];
        readers::request(&source, &sinks, request)
            .run()
            .unwrap()
            .ended
    });
    ends_with_the_last_part(|source, sink, request| {
        let fan = sources::request(std::slice::from_ref(&source), &sink, request);
        fan.run().unwrap().ended
    });
    ends_with_the_last_part(|source, sink, request| {
        let buffered = runs::request(&source, &sink, 4 << 20, request);
        buffered.run().unwrap().ended
    });
}
