//! What the tests of awkward cases share: sources and sinks that can be asked
//! afterwards what went through them.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod datagrams;
pub mod mount;
mod same;
mod ways;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub use same::Same;
pub use ways::*;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use cordboard::{
    Control, DataPath, Observer, Outcome, Progress, Report, Request, Stranded, Switches, Transfer,
};

/// Bytes of which no two pages are alike.
pub fn pattern(n: usize) -> Vec<u8> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// A file with this content, at its start.
pub fn file_with(data: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(data).unwrap();
    file.rewind().unwrap();
    file
}

/// All of a file.
pub fn content(mut file: &File) -> Vec<u8> {
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

/// All that a descriptor still gives.
pub fn content_of(fd: impl Into<OwnedFd>) -> Vec<u8> {
    let mut all = Vec::new();
    File::from(fd.into()).read_to_end(&mut all).unwrap();
    all
}

pub fn rewind(mut file: &File) {
    file.rewind().unwrap();
}

pub fn position(mut file: &File) -> u64 {
    file.stream_position().unwrap()
}

/// Direct I/O is done by `io_uring(7)` here, which completions wake through an
/// eventfd; elsewhere by threads.
pub fn has_rings() -> bool {
    use testkit::needs::Need;
    [Need::IoUring, Need::Eventfd].iter().all(|n| n.is_met())
}

/// A request that leaves these paths only.
pub fn only(paths: &[DataPath]) -> Request {
    Request {
        switches: Some(Switches::only(paths)),
        ..Request::default()
    }
}

/// Any path, whatever the environment says.
pub fn any() -> Request {
    only(DataPath::ALL)
}

pub fn run(source: impl AsFd, sink: impl AsFd, request: Request) -> Outcome {
    Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap_or_else(|failure| panic!("refused: {failure}"))
        .run()
}

/// Moves these bytes from one pipe to another, where one thread writes and another
/// reads them, with calls that are refused as [`testkit::midst::refusing`] has it.
/// The number of those calls, the report, and what came; `None` where calls cannot
/// be held.
pub fn piped(
    data: &[u8],
    calls: &[std::ffi::c_long],
    refuse: impl FnMut(usize) -> Option<i32>,
) -> Option<(usize, Report, Vec<u8>)> {
    let (source, mut feed) = std::io::pipe().unwrap();
    let (mut out, sink) = std::io::pipe().unwrap();
    let mut report = None;
    let body = || {
        report = Some(run(&source, &sink, any()).report);
        drop((source, sink));
    };
    let (count, got) = std::thread::scope(|scope| {
        // An error means that the transfer has ended before.
        scope.spawn(move || _ = feed.write_all(data));
        let got = scope.spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).unwrap();
            all
        });
        let count = testkit::midst::refusing(calls, body, refuse);
        (count, got.join().unwrap())
    });
    Some((count?, report?, got))
}

/// All that is in a pipe, up to its end, by reads with room for a whole packet.
pub fn read_packets(reader: OwnedFd) -> Vec<u8> {
    let (mut all, mut packet) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&reader, &mut packet).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&packet[..n]),
        }
    }
}

/// From now on this thread, and those that it starts, get no socket pair as the
/// library has it between two pipes, which then inspects what it moves.
pub fn refuse_own_socket_pairs() {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    testkit::refuse::refuse_where(libc::SYS_socketpair, 1, kind as u32, libc::EPERM);
}

pub fn with_control(
    source: impl AsFd,
    sink: impl AsFd,
    request: Request,
    control: &Control,
) -> Outcome {
    Transfer::new(source.as_fd(), sink.as_fd(), request)
        .unwrap()
        .control(control)
        .run()
}

/// The bytes that were handed back, joined.
pub fn handed_back(stranded: Option<Stranded>) -> Vec<u8> {
    match stranded {
        None => Vec::new(),
        Some(Stranded::Buffer(bytes)) => bytes,
        Some(Stranded::Datagrams(all)) => all.concat(),
        Some(Stranded::Pipe(pipe)) => {
            let mut all = Vec::new();
            File::from(pipe).read_to_end(&mut all).unwrap();
            all
        }
        Some(_) => panic!("a new kind of stranded bytes"),
    }
}

/// Kinds of byte streams to take from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    File,
    Pipe,
    Unix,
    Tcp,
}

/// A source that gives `data` and then ends.
pub struct Source {
    pub fd: OwnedFd,
    feeder: Option<JoinHandle<()>>,
}

impl Source {
    pub fn new(kind: From, data: &[u8]) -> Source {
        let (fd, feed): (OwnedFd, OwnedFd) = match kind {
            From::File => {
                return Source {
                    fd: file_with(data).into(),
                    feeder: None,
                };
            }
            From::Pipe => {
                let (reader, writer) = std::io::pipe().unwrap();
                (reader.into(), writer.into())
            }
            From::Unix => {
                let (a, b) = UnixStream::pair().unwrap();
                (a.into(), b.into())
            }
            From::Tcp => {
                let (a, b) = tcp_pair();
                (a.into(), b.into())
            }
        };
        let data = data.to_vec();
        let feeder = std::thread::spawn(move || {
            // An error only means that the test has seen enough.
            let _ = File::from(feed).write_all(&data);
        });
        Source {
            fd,
            feeder: Some(feeder),
        }
    }

    /// What has not been taken from it.
    pub fn rest(self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut file = File::from(self.fd);
        file.read_to_end(&mut rest).unwrap();
        if let Some(feeder) = self.feeder {
            feeder.join().unwrap();
        }
        rest
    }
}

pub fn tcp_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Both ends of a pseudoterminal: the user's, and the one that programs have.
pub fn pty() -> (OwnedFd, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
    (master, tty)
}

/// Has a terminal pass bytes on as they are.
pub fn raw(tty: &OwnedFd) {
    let mut termios = rustix::termios::tcgetattr(tty).unwrap();
    termios.make_raw();
    rustix::termios::tcsetattr(tty, rustix::termios::OptionalActions::Now, &termios).unwrap();
}

/// Nothing was lost and nothing counted wrong: what was written, what was
/// handed back and what is still in the source are the whole again.
pub fn audit(what: &str, outcome: Outcome, source: Source, kind: From, data: &[u8]) {
    let report = &outcome.report;
    let (read, written) = (report.read as usize, report.written as usize);
    assert_eq!(
        report.read,
        report.written + report.stranded,
        "{what}: {report:?}"
    );
    let stranded = handed_back(outcome.stranded);
    assert_eq!(stranded.len() as u64, report.stranded, "{what}: {report:?}");
    if kind == From::File {
        assert_eq!(report.stranded, 0, "{what}: a file is rewound: {report:?}");
    }
    assert!(stranded == data[written..read], "{what}: stranded bytes");
    assert!(source.rest() == data[read..], "{what}: rest of the source");
}

/// Aborts with the test's name if it hangs.
pub struct Watchdog(#[allow(dead_code, reason = "dropped, not read")] mpsc::Sender<()>);

pub fn watchdog(name: &'static str) -> Watchdog {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(testkit::watchdog::patience())
            == Err(mpsc::RecvTimeoutError::Timeout)
        {
            // Past the harness's capture.
            let _ = writeln!(std::io::stderr().lock(), "HANGS: {name}");
            std::process::abort();
        }
    });
    Watchdog(sender)
}

pub fn root() -> bool {
    rustix::process::geteuid().is_root()
}

const CHILD: &str = "CORDBOARD_TEST_CHILD";

/// Runs the test of this name again, alone in a process of its own: for what
/// would disturb the others (limits, signals, descriptors, identity). True in
/// that process; false in the first, once the other has succeeded.
pub fn alone(name: &'static str) -> bool {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}", output.status);
    assert!(text.contains("1 passed"), "{name} did not run\n{text}");
    for line in text.lines().filter(|line| line.contains("SKIPPED:")) {
        // Past the harness's capture.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
    false
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Does something to a file once bytes have moved.
pub struct Meanwhile<F: FnMut()> {
    what: F,
    done: bool,
}

impl<F: FnMut()> Observer for Meanwhile<F> {
    fn progress(&mut self, progress: &Progress) {
        if progress.written > 0 && !self.done {
            self.done = true;
            (self.what)();
        }
    }
}

pub fn meanwhile<F: FnMut()>(what: F) -> Meanwhile<F> {
    Meanwhile { what, done: false }
}

pub const MIB: usize = 1 << 20;
/// Where pages, pipes and buffers end.
pub const BOUNDARIES: [usize; 11] = [
    0,
    1,
    4095,
    4096,
    4097,
    65_535,
    65_536,
    65_537,
    MIB - 1,
    MIB,
    MIB + 1,
];

/// Every path from this kind of source to a sink of the given kind that can be
/// forced here.
pub fn paths(from: From, to_file: bool, to_pipe: bool) -> Vec<DataPath> {
    forcible(match (from, to_file, to_pipe) {
        (From::File, true, _) => &[
            DataPath::CopyFileRange,
            DataPath::Sendfile,
            DataPath::Splice,
            DataPath::ReadWrite,
        ],
        (From::File, false, false) => &[DataPath::Sendfile, DataPath::Splice, DataPath::ReadWrite],
        _ => &[DataPath::Splice, DataPath::ReadWrite],
    })
}

pub const SOURCES: [From; 4] = [From::File, From::Pipe, From::Unix, From::Tcp];
