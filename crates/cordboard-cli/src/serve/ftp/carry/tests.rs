//! Unit tests of the two parts of a download.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A later close of theirs could be the one that reports that the file system is full.
#[test]
fn the_descriptors_are_closed_before_the_first_command() {
    let (source, _writer) = std::io::pipe().unwrap();
    let (_reader, sink) = std::io::pipe().unwrap();
    // Both ends of a pipe have the same link.
    let link_of = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let links =
        [source.as_fd(), sink.as_fd()].map(|fd| link_of(&fd.as_raw_fd().to_string()).unwrap());
    let _cue = super::super::mover::cue_of(source.into(), sink.into()).unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let open: Vec<_> = numbers.filter_map(|number| link_of(&number)).collect();
    for link in links {
        // The end that this test holds, and that of the service.
        let count = open.iter().filter(|other| **other == link).count();
        assert_eq!(count, 2, "{link:?}");
    }
}

/// A session that sends a file of zeros to a client.
struct Download {
    control: TcpStream,
    lines: Lines,
    server: Server,
    source: OwnedFd,
    sink: OwnedFd,
    socket: UnixStream,
    client: UnixStream,
    _ending: OwnedFd,
}

impl Download {
    fn of(bytes: u64) -> Download {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ending, _ending) = rustix::pipe::pipe().unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let source = rustix::fs::memfd_create("source", flags).unwrap();
        rustix::fs::ftruncate(&source, bytes).unwrap();
        let (socket, client) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        Download {
            control,
            lines: Lines::new(listener.accept().unwrap().0),
            server: Server::with_end(ending),
            source,
            sink: socket.try_clone().unwrap().into(),
            socket,
            client,
            _ending,
        }
    }

    /// Sends the head to a client that does not read. `age` is that of the transfer.
    fn sends_head(&mut self, age: Duration, watch: &mut Watch, carried: &mut Carried) -> bool {
        watch.start = watch.start.checked_sub(age).unwrap();
        let to = Client {
            socket: self.socket.as_fd(),
            received: None,
        };
        let head = Head::new(&self.source, &self.sink).unwrap();
        has_sent_all(&self.server, &mut self.lines, &to, head, (carried, watch))
    }

    /// Sends the rest to a client that reads.
    fn sends_rest(mut self, watch: Watch) -> Carried {
        let Download { mut client, .. } = self;
        let reads = std::thread::spawn(move || client.read_to_end(&mut Vec::new()));
        let to = Client {
            socket: self.socket.as_fd(),
            received: None,
        };
        let mover = Mover::new(self.source, self.sink, None, (0, SECOND), None).unwrap();
        let carried = Carried::default();
        let carried = go_on(&self.server, &mut self.lines, &to, mover, carried, watch);
        drop(self.socket);
        reads.join().unwrap().unwrap();
        carried
    }
}

#[test]
fn the_control_descriptor_takes_over_at_an_age() {
    const BYTES: u64 = 4 << 20;
    let mut download = Download::of(BYTES);
    let mut watch = Watch::new(None, String::new(), SECOND);
    let mut carried = Carried::default();
    assert!(!download.sends_head(head::LONGEST, &mut watch, &mut carried));
    assert!((1..BYTES).contains(&watch.sent.written));
    assert_eq!(carried.written, watch.sent.written);
    // The log names it, also if the rest cannot be started.
    assert_eq!(carried.path, Some(DataPath::Sendfile));
    let carried = download.sends_rest(watch);
    assert_eq!((carried.complete, carried.written), (true, BYTES));
}

/// The commands are handled while the head waits for the client.
#[test]
fn a_client_aborts_the_head() {
    let mut download = Download::of(4 << 20);
    (download.control.write_all(b"STAT\r\nABOR\r\n")).unwrap();
    let mut watch = Watch::new(None, String::new(), SECOND);
    let mut carried = Carried::default();
    assert!(download.sends_head(Duration::ZERO, &mut watch, &mut carried));
    assert!(carried.aborted && !carried.complete);
    assert!(carried.written > 0);
    drop(download.lines);
    let mut replies = String::new();
    download.control.read_to_string(&mut replies).unwrap();
    assert!(replies.starts_with("213 ") && replies.lines().count() == 1);
}

/// The second transfer of the download begins behind the new end.
#[test]
fn a_file_that_is_truncated_behind_its_head_is_not_complete() {
    let mut download = Download::of(4 << 20);
    let mut watch = Watch::new(None, String::new(), SECOND);
    watch.extent = Extent::of(&download.source).unwrap();
    assert!(!download.sends_head(head::LONGEST, &mut watch, &mut Carried::default()));
    assert!(watch.sent.done.is_none() && watch.sent.written > 1000);
    rustix::fs::ftruncate(&download.source, 1000).unwrap();
    let carried = download.sends_rest(watch);
    assert!(!carried.complete);
    let failed = (carried.failed, carried.errno);
    assert_eq!(failed, (Some(Side::Source), Some(Errno::ENODATA)));
}

/// A file server may delay the start of an upload for longer than the idle time.
#[test]
fn the_idle_time_begins_with_the_transfer() {
    let Download {
        mut control,
        mut lines,
        server,
        source: file,
        sink: network,
        socket,
        mut client,
        _ending,
    } = Download::of(0);
    let mut watch = Watch::new(None, String::new(), SECOND);
    watch.begin_idle_time(Instant::now().checked_sub(2 * server.idle).unwrap());
    control.write_all(b"STAT\r\n").unwrap();
    let sends = std::thread::spawn(move || {
        // The reply comes after the first check of the idle time.
        control.read_exact(&mut [0]).unwrap();
        client.write_all(b"x").unwrap();
        (control, client.shutdown(std::net::Shutdown::Write))
    });
    let to = Client {
        socket: socket.as_fd(),
        received: None,
    };
    let mover = Mover::new(network, file, None, (0, SECOND), None).unwrap();
    let carried = Carried::default();
    let carried = go_on(&server, &mut lines, &to, mover, carried, watch);
    assert!(!carried.idle && carried.complete, "{carried:?}");
    sends.join().unwrap().1.unwrap();
}
