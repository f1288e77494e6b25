//! What a transfer must not change in its host: signals, descriptor flags,
//! descriptors that arrive with a message.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::common::{self, any, descriptors, file_with, only, pattern, run, watchdog};
use cordboard::DataPath::{CopyFileRange, ReadWrite, Sendfile, Splice};
use cordboard::{Ended, Errno, Request, Side, Size};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, socketpair,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The thread's signal mask and pending signals, and the action of one signal.
fn signals(signal: libc::c_int) -> (Vec<bool>, usize) {
    let mut masked = Vec::new();
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: reads the mask into a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
    // SAFETY: fills in a valid set.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    for number in 1..32 {
        // SAFETY: both sets are initialised.
        masked.push(unsafe { libc::sigismember(mask.as_ptr(), number) } == 1);
        // SAFETY: as above.
        masked.push(unsafe { libc::sigismember(pending.as_ptr(), number) } == 1);
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the action into a valid structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed, and filled in by the kernel.
    (masked, unsafe { action.assume_init() }.sa_sigaction)
}

#[test]
fn a_closed_reader_does_not_kill_the_host() {
    let _dog = watchdog("a_closed_reader_does_not_kill_the_host");
    if !common::alone!() {
        return;
    }
    // SAFETY: the default action, which is to die.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let file = file_with(&pattern(300_000));
    // Of write(2), if a filter refuses the calls that have MSG_NOSIGNAL.
    let sends = [libc::SYS_sendto, libc::SYS_sendmsg];
    for refused in 0..=sends.len() {
        testkit::refuse::apart(|| {
            testkit::refuse::refuse(&sends[..refused], libc::EPERM);
            no_signal_comes(&file);
        });
    }
}

fn no_signal_comes(file: &std::fs::File) {
    let before = signals(libc::SIGPIPE);
    for path in common::forcible(&[Splice, ReadWrite, Sendfile]) {
        let (reader, pipe) = std::io::pipe().unwrap();
        let (peer, socket) = UnixStream::pair().unwrap();
        let (far, tcp) = common::tcp_pair();
        rustix::net::sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
        drop((reader, peer, far));
        let sinks: [OwnedFd; 3] = [pipe.into(), socket.into(), tcp.into()];
        for sink in sinks.iter().skip(usize::from(path == Sendfile)) {
            let (source, feed) = UnixStream::pair().unwrap();
            rustix::io::write(&feed, b"into the void").unwrap();
            drop(feed);
            // The first call on a connection that was reset returns the error.
            let first = if path == Sendfile {
                run(file, sink, only(&[path])).report
            } else {
                run(&source, sink, only(&[path])).report
            };
            assert_eq!(first.failed, Some(Side::Sink), "{path}: {first:?}");
            let report = run(file, sink, only(&[path])).report;
            assert_eq!(report.failed, Some(Side::Sink), "{path}: {report:?}");
            assert_eq!(report.errno, Some(Errno::EPIPE), "{path}: {report:?}");
            assert_eq!(common::position(file), 0);
        }
        assert_eq!(signals(libc::SIGPIPE), before, "{path}");
    }
}

#[test]
fn a_size_limit_does_not_kill_the_host() {
    let _dog = watchdog("a_size_limit_does_not_kill_the_host");
    if !common::alone!() {
        return;
    }
    let source = file_with(&pattern(300_000));
    let sink = tempfile::tempfile().unwrap();
    let before = signals(libc::SIGXFSZ);
    assert_eq!(before.1, libc::SIG_DFL);
    let limit = Rlimit {
        current: Some(1000),
        maximum: Some(1000),
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    for path in [CopyFileRange, Sendfile, Splice, ReadWrite] {
        sink.set_len(0).unwrap();
        let request = Request {
            source_offset: Some(0),
            ..only(&[path, ReadWrite])
        };
        rustix::fs::seek(&sink, rustix::fs::SeekFrom::Start(0)).unwrap();
        let report = run(&source, &sink, request).report;
        assert_eq!(report.errno, Some(Errno::EFBIG), "{path}: {report:?}");
        assert_eq!((report.failed, report.written), (Some(Side::Sink), 1000));
        assert_eq!(signals(libc::SIGXFSZ), before, "{path}");
    }
}

/// Returns whether this signal is pending for the calling thread, and for the
/// process (`proc_pid_status(5)`).
fn pending(signal: libc::c_int) -> [bool; 2] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    ["SigPnd:", "ShdPnd:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let mask = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        mask >> (signal - 1) & 1 == 1
    })
}

static CAUGHT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn catch(_: libc::c_int) {
    CAUGHT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// How a signal is sent: to the process, to the thread, or to both; by this process
/// or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Not,
    ForTheProcess,
    FromAnotherProcess,
    ForTheThread,
    ForBoth,
}

const CAME: [Came; 5] = [
    Came::Not,
    Came::ForTheProcess,
    Came::FromAnotherProcess,
    Came::ForTheThread,
    Came::ForBoth,
];

impl Came {
    fn come(self, signal: libc::c_int) {
        let this = std::process::id() as libc::pid_t;
        if matches!(self, Came::ForTheProcess | Came::ForBoth) {
            // SAFETY: takes integers.
            assert_eq!(unsafe { libc::kill(this, signal) }, 0);
        }
        if self == Came::FromAnotherProcess {
            assert!(testkit::child::in_a_child(|| {
                // SAFETY: takes integers.
                unsafe { libc::kill(this, signal) == 0 }
            }));
        }
        if matches!(self, Came::ForTheThread | Came::ForBoth) {
            // SAFETY: takes an integer.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
    }

    fn is_pending(self) -> [bool; 2] {
        [
            matches!(self, Came::ForTheThread | Came::ForBoth),
            !matches!(self, Came::ForTheThread | Came::Not),
        ]
    }
}

/// Sends the host a signal during a transfer, and closes the sink's reader.
struct Midst {
    came: Came,
    signal: libc::c_int,
    reader: Option<std::io::PipeReader>,
}

impl cordboard::Observer for Midst {
    fn progress(&mut self, progress: &cordboard::Progress) {
        if progress.written > 0 {
            std::mem::replace(&mut self.came, Came::Not).come(self.signal);
            self.reader = None;
        }
    }
}

/// A signal of the host that is pending at the start of a transfer, or sent during
/// it, stays pending as it was sent. No signal that the transfer has raised stays
/// pending.
#[test]
fn the_hosts_own_signals_stay_what_they_are() {
    let _dog = watchdog("the_hosts_own_signals_stay_what_they_are");
    if !common::alone!() {
        return;
    }
    let mut wrong = Vec::new();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        for came in CAME {
            for fails in [false, true] {
                for meanwhile in [false, true] {
                    // With a single thread, so that no other one takes a signal of
                    // the process.
                    let fine = testkit::child::in_a_child(|| {
                        stays(signal, came, fails, meanwhile);
                        true
                    });
                    if !fine {
                        wrong.push((signal, came, fails, meanwhile));
                    }
                }
            }
        }
    }
    assert_eq!(wrong, []);
}

fn stays(signal: libc::c_int, came: Came, fails: bool, meanwhile: bool) {
    let handler: extern "C" fn(libc::c_int) = catch;
    // SAFETY: the handler counts, and does nothing else.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    let mut one = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: fills in a valid set.
    unsafe { libc::sigemptyset(one.as_mut_ptr()) };
    // SAFETY: the set is filled in.
    unsafe { libc::sigaddset(one.as_mut_ptr(), signal) };
    let mask = |how| {
        // SAFETY: reads a valid set.
        unsafe { libc::pthread_sigmask(how, one.as_ptr(), std::ptr::null_mut()) };
    };
    mask(libc::SIG_BLOCK);
    let source = file_with(&pattern(300_000));
    let (reader, pipe) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20).unwrap();
    let sink: OwnedFd = match signal {
        libc::SIGPIPE => pipe.into(),
        _ => tempfile::tempfile().unwrap().into(),
    };
    if signal == libc::SIGXFSZ {
        let limit = Rlimit {
            current: Some(if fails { 200_000 } else { 1 << 20 }),
            maximum: None,
        };
        setrlimit(Resource::Fsize, limit).unwrap();
    }
    let (before, during) = match meanwhile {
        false => (came, Came::Not),
        true => (Came::Not, came),
    };
    before.come(signal);
    let (dies, _lives) = match fails {
        true => (Some(reader), None),
        false => (None, Some(reader)),
    };
    let midst = Midst {
        came: during,
        signal,
        reader: dies,
    };
    let transfer = cordboard::Transfer::new(source.as_fd(), sink.as_fd(), only(&[ReadWrite]));
    let report = transfer.unwrap().observe(midst).run().report;
    let errno = match signal {
        libc::SIGPIPE => Errno::EPIPE,
        _ => Errno::EFBIG,
    };
    assert_eq!(report.errno, fails.then_some(errno), "{report:?}");
    assert_eq!(pending(signal), came.is_pending());
    mask(libc::SIG_UNBLOCK);
    let caught = CAUGHT.load(std::sync::atomic::Ordering::Relaxed);
    let all = came.is_pending().into_iter().filter(|there| *there).count();
    assert_eq!(caught, all as u32);
}

/// A message with a descriptor in it.
fn send_with_descriptor(to: impl AsFd, bytes: &[u8], fd: BorrowedFd<'_>) {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); 128];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    rustix::net::sendmsg(
        to,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::empty(),
    )
    .unwrap();
}

#[test]
fn descriptors_that_come_along_are_dropped_and_closed() {
    let _dog = watchdog("descriptors_that_come_along_are_dropped_and_closed");
    if !common::alone!() {
        return;
    }
    let types = [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM];
    for (index, kind) in types.into_iter().enumerate() {
        let paths = common::forcible(match index {
            0 => &[Splice, ReadWrite],
            _ => &[cordboard::DataPath::Datagram, ReadWrite],
        });
        for path in paths {
            let pair =
                || socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let ((a, source), (sink, b)) = (pair(), pair());
            // The pool and the buffers exist before anything is counted.
            let count = |n: u64| {
                for _ in 0..n {
                    let (reader, writer) = std::io::pipe().unwrap();
                    send_with_descriptor(&a, b"ride along", reader.as_fd());
                    drop((reader, writer));
                }
                let request = Request {
                    size: Size::Bytes(10 * n),
                    ..only(&[path])
                };
                let report = run(&source, &sink, request).report;
                assert_eq!(
                    (report.ended, report.written),
                    (Ended::Size, 10 * n),
                    "{report:?}"
                );
                let (mut got, mut bytes) = (0, [0; 64]);
                while got < 10 * n {
                    let mut space = [MaybeUninit::uninit(); 128];
                    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                    let mut parts = [IoSliceMut::new(&mut bytes)];
                    let flags = RecvFlags::empty();
                    let message = rustix::net::recvmsg(&b, &mut parts, &mut ancillary, flags);
                    got += message.unwrap().bytes as u64;
                    assert_eq!(
                        ancillary.drain().count(),
                        0,
                        "{path}: a descriptor came through"
                    );
                }
                descriptors()
            };
            let first = count(1);
            assert_eq!(count(20), first, "{kind:?} by {path}");
        }
    }
}

#[test]
fn no_flag_of_a_descriptor_is_changed() {
    use rustix::fs::{OFlags, fcntl_getfl};
    let _dog = watchdog("no_flag_of_a_descriptor_is_changed");
    let (pipe_r, pipe_w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::DIRECT).unwrap();
    let (unix_a, unix_b) = UnixStream::pair().unwrap();
    let (tcp_a, tcp_b) = common::tcp_pair();
    let (dgram_a, dgram_b) = std::os::unix::net::UnixDatagram::pair().unwrap();
    rustix::io::write(&pipe_w, b"12345678").unwrap();
    (&unix_a).write_all(b"12345678").unwrap();
    (&tcp_a).write_all(b"12345678").unwrap();
    dgram_a.send(b"12345678").unwrap();
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let zero = File::options()
        .read(true)
        .write(true)
        .open("/dev/zero")
        .unwrap();
    let source_file = file_with(b"12345678");
    let pairs: [(BorrowedFd<'_>, BorrowedFd<'_>); 6] = [
        (unix_b.as_fd(), pipe_w.as_fd()),
        (tcp_b.as_fd(), unix_b.as_fd()),
        (dgram_b.as_fd(), tcp_b.as_fd()),
        (pipe_r.as_fd(), dgram_b.as_fd()),
        (source_file.as_fd(), null.as_fd()),
        (zero.as_fd(), null.as_fd()),
    ];
    for (source, sink) in pairs {
        let flags = |fd| {
            (
                fcntl_getfl(fd).unwrap(),
                rustix::io::fcntl_getfd(fd).unwrap(),
            )
        };
        let before = (flags(source), flags(sink));
        for polled in [true, false] {
            let request = Request {
                size: 4.into(),
                idle: polled.then_some(std::time::Duration::from_millis(1)),
                ..any()
            };
            let report = run(source, sink, request).report;
            assert_ne!(report.ended, Ended::Error, "{report:?}");
            assert_eq!((flags(source), flags(sink)), before);
        }
        assert!(!before.0.0.contains(OFlags::NONBLOCK));
    }
}
