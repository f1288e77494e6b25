//! Two sockets for one name: a bound socket keeps its file, whatever its state.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;

use testkit::refuse::refuse_executable_memory;
use testkit::stall::{Call, Stall};

use super::common::*;
use super::start;

/// An endpoint that binds a socket to a path, and one that connects to it.
const SCHEMES: [(&str, &str); 3] = [
    ("unix-listen", "unix"),
    ("unix-seqpacket-listen", "unix-seqpacket"),
    ("unix-dgram", "unix-dgram"),
];

/// Whether a socket is bound to this path, and listens unless it is one for
/// datagrams (`__SO_ACCEPTCON` in the flags, net/unix/af_unix.c).
fn is_up(path: &Path, scheme: &str) -> bool {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(3).is_some_and(|flags| *flags == "00010000");
        fields.get(7).is_some_and(|name| Path::new(name) == path)
            && (listens || scheme == "unix-dgram")
    })
}

fn bind(scheme: &str, path: &Path) -> Owned {
    let child = start(&[&format!("{scheme}:{}", path.display()), "-", "--size", "6"]);
    until("a socket", || is_up(path, scheme).then_some(()));
    child
}

/// Sends to it, and returns what it has received.
fn serves(child: Owned, path: &Path, client: &str, source: &Path) -> Vec<u8> {
    let sink = format!("{client}:{}", path.display());
    end(start(&[source.to_str().unwrap(), &sink])).ok();
    end(child).ok().stdout().to_vec()
}

/// Its listener takes one connection, which must not be that of another
/// command.
#[test]
fn a_bound_socket_is_not_disturbed() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let path = dir.path().join("s");
    for (scheme, client) in SCHEMES {
        let child = bind(scheme, &path);
        for (other, _) in SCHEMES {
            let second = end(start(&[&format!("{other}:{}", path.display()), "-"]));
            second.fails(1, &["Address already in use (EADDRINUSE)"]);
        }
        assert_eq!(serves(child, &path, client, &source), b"stream", "{scheme}");
        assert!(!path.exists(), "{scheme}");
    }
}

/// Starts it, stalling at the first call of this kind; `None` if the kernel
/// cannot do that.
fn stalling(scheme: &str, path: &Path, call: Call) -> Option<(Owned, Stall)> {
    let name = format!("{scheme}:{}", path.display());
    let mut command = cordboard();
    command
        .args(["splice", &name, "-", "--size", "6"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let last = path.file_name().unwrap().to_owned();
    // Its directory may be open.
    let holds = move |made, at: &std::ffi::OsStr| {
        made == call && (made == Call::Listen || Path::new(at).file_name() == Some(&last))
    };
    Stall::spawn(&mut command, holds)
        .inspect_err(|error| testkit::skip::here(testkit::stall::why(error)))
        .ok()
}

/// It is bound, and `listen(2)` is still to come.
#[test]
fn a_socket_that_does_not_listen_yet_is_in_use() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let path = dir.path().join("s");
    for (scheme, client) in &SCHEMES[..2] {
        let Some((child, stall)) = stalling(scheme, &path, Call::Listen) else {
            return;
        };
        let held = stall.reached();
        for (other, _) in SCHEMES {
            let second = end(start(&[&format!("{other}:{}", path.display()), "-"]));
            second.fails(1, &["Address already in use (EADDRINUSE)"]);
        }
        held.release();
        until("a listener", || is_up(&path, scheme).then_some(()));
        assert_eq!(serves(child, &path, client, &source), b"stream", "{scheme}");
    }
}

/// Two processes find it stale: the first has removed it and is bound to the
/// name when the second is about to remove it. A file system may give the first
/// one's file the inode of the stale one.
#[test]
fn a_stale_file_that_another_has_just_replaced() {
    let dir = dir();
    let path = dir.path().join("s");
    for (scheme, _) in SCHEMES {
        drop(UnixListener::bind(&path).unwrap());
        until("a refusal", || UnixStream::connect(&path).err());
        let Some((second, stall)) = stalling(scheme, &path, Call::Rename) else {
            return;
        };
        let held = stall.reached();
        std::fs::remove_file(&path).unwrap();
        let first = UnixListener::bind(&path).unwrap();
        held.release();
        end(second).fails(1, &["Address already in use (EADDRINUSE)"]);
        UnixStream::connect(&path).unwrap();
        drop(first);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_abstract_name_that_is_in_use() {
    let name = format!("cordboard-in-use-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _first = UnixListener::bind_addr(&address).unwrap();
    end(start(&[&format!("unix-listen:@{name}"), "-"])).fails(
        1,
        &["Address already in use (EADDRINUSE) listening as the source"],
    );
}

/// The lock that keeps two processes of the command apart belongs to any program that uses it.
#[test]
fn a_directory_that_another_program_has_locked() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let path = dir.path().join("s");
    let directory = std::fs::File::open(dir.path()).unwrap();
    directory.lock().unwrap();
    let name = format!("unix-listen:{}", path.display());
    let child = start(&[&name, "-", "--size", "6"]);
    until("a listener", || is_up(&path, "unix-listen").then_some(()));
    assert_eq!(serves(child, &path, "unix", &source), b"stream");
}

/// Several processes find it stale at once: one of them has the name in the
/// end, and serves.
#[test]
fn several_that_replace_a_stale_file_at_once() {
    const ROUNDS: usize = 20;
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let path = dir.path().join("s");
    for round in 0..ROUNDS {
        drop(UnixListener::bind(&path).unwrap());
        until("a refusal", || UnixStream::connect(&path).err());
        let name = format!("unix-listen:{}", path.display());
        let mut all: Vec<Owned> = (0..3)
            .map(|_| start(&[&name, "-", "--size", "6"]))
            .collect();
        // All but one end.
        until("the others' end", || {
            let running = all.iter_mut().filter_map(|child| match child.try_wait() {
                Ok(None) => Some(()),
                _ => None,
            });
            (running.count() == 1).then_some(())
        });
        let first = all.iter_mut().position(|c| c.try_wait().unwrap().is_none());
        let first = all.remove(first.unwrap());
        for other in all {
            end(other).fails(1, &["Address already in use (EADDRINUSE)"]);
        }
        until("a listener", || is_up(&path, "unix-listen").then_some(()));
        assert_eq!(serves(first, &path, "unix", &source), b"stream", "{round}");
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "private names are left");
    }
}

/// The bytes of a peer would be lost if the command failed after it was connected.
#[test]
fn what_is_wrong_is_found_before_a_peer_is_waited_for() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (folder, file) = (path(""), file(&dir, "f", b"").display().to_string());
    let folder = folder.trim_end_matches('/');
    let (new, below) = (path("new/"), format!("{file}/x"));
    // No process writes to it: an open would wait.
    let fifo = dir.path().join("fifo");
    let fifo = super::common::fifo(&fifo).to_owned();
    let peer = UnixListener::bind(path("peer")).unwrap();
    let sources = [
        fifo,
        format!("unix:{}", path("peer")),
        "tcp-listen:127.0.0.1:0".to_owned(),
        "udp-listen:127.0.0.1:0".to_owned(),
        format!("unix-listen:{}", path("s")),
        format!("unix-seqpacket-listen:{}", path("s")),
        format!("unix-dgram:{}", path("s")),
    ];
    let socket = path("socket");
    let _socket = UnixListener::bind(&socket).unwrap();
    let cases: [(&[&str], &str); 23] = [
        (&[&socket], "No such device or address (ENXIO)"),
        (&["/no/such/dir/out"], "No such file or directory (ENOENT)"),
        (&[folder], "Is a directory (EISDIR)"),
        (&[&new], "directory does not exist"),
        (&[&below], "Not a directory (ENOTDIR)"),
        (&["fd:77"], "Bad file descriptor (EBADF)"),
        (&["-", "--offset", "1"], "which cannot seek (ESPIPE)"),
        (
            &["-", "--sink-offset", "5"],
            "cannot seek (ESPIPE); only files and block devices have offsets: omit --sink-offset",
        ),
        (&["-", "--sync"], "cannot be synced (EINVAL); omit --sync"),
        (&["tcp:127.0.0.1:9", "--sync"], "omit --sync"),
        (&["/proc/self/comm", "--sync"], "omit --sync"),
        (
            &["udp:127.0.0.1:9", "--zstd"],
            "zstd would merge its messages",
        ),
        (&["-", "--buffer", "1M", "--sync"], "omit --sync"),
        (&["-", &file, "--sync"], "omit --sync"),
        (&[&file, &file], "two sinks are the same file"),
        (
            &["/dev/null", "-", "--fan-in", "turn", "--sync"],
            "omit --sync",
        ),
        (
            &["tcp:127.0.0.1:9", "--sink-offset", "1"],
            "is a socket, which cannot seek (ESPIPE)",
        ),
        (&["/no/such/dir/out", "--buffer", "1M"], "(ENOENT)"),
        (&["-", "--buffer", "1M", "--offset", "1"], "(ESPIPE)"),
        (
            &["-", "--buffer", "1M", "--buffer-file", "/no/such/dir"],
            "(ENOENT)",
        ),
        (&["-", "/no/such/dir/out"], "(ENOENT)"),
        (&["-", &file, "--offset", "1"], "(ESPIPE)"),
        (
            &["/dev/null", "/no/such/dir/out", "--fan-in", "turn"],
            "(ENOENT)",
        ),
    ];
    for source in &sources {
        for (args, says) in cases {
            let run = end(start(&[&[source.as_str()][..], args].concat()));
            run.fails(1, &[says]);
        }
        assert!(!Path::new(&path("s")).exists(), "{source}");
    }
    let by_datagram = ["tcp-listen:127.0.0.1:0", "-", "--fan-in", "datagram"];
    end(start(&by_datagram)).fails(1, &["no message boundaries"]);
    let seqpacket = format!("unix-seqpacket-listen:{}", path("s"));
    let buffered = end(start(&[&seqpacket, "udp:127.0.0.1:9", "--buffer", "1M"]));
    buffered.fails(1, &["would merge its messages"]);
    peer.set_nonblocking(true).unwrap();
    assert!(peer.accept().is_err());
}

#[test]
fn an_inherited_sink_is_examined_before_a_peer_is_waited_for() {
    let dir = dir();
    let path = file(&dir, "f", b"");
    let fifo = dir.path().join("fifo");
    let source = super::common::fifo(&fifo);
    let (mut write, mut append) = (std::fs::File::options(), std::fs::File::options());
    let (write, append) = (write.read(true), append.append(true));
    let cases: [(_, &[&str], _); 3] = [
        (&*write, &[], "the sink is not open for writing"),
        (
            append,
            &["--sink-offset", "5"],
            "omit --sink-offset, or open",
        ),
        (append, &["--sparse", "always"], "omit --sparse always"),
    ];
    for (options, args, says) in cases {
        let sink = options.open(&path).unwrap();
        let mut splice = cordboard();
        splice.args(["splice", source, "-"]).args(args);
        let child = splice.stdout(sink).stderr(Stdio::piped()).start();
        end(child).fails(1, &[says]);
    }
}

/// access(2) permits writing to a file that can only be appended to.
#[test]
fn a_file_for_appending_only_is_found_before_a_peer_is_waited_for() {
    use rustix::fs::{IFlags, ioctl_setflags};
    let dir = dir();
    let path = file(&dir, "f", b"");
    let (socket, own) = (dir.path().join("s"), File::open(&path).unwrap());
    if let Err(errno) = ioctl_setflags(&own, IFlags::APPEND) {
        return testkit::skip::here(format!("append-only: {errno}"));
    }
    let source = format!("unix-listen:{}", socket.display());
    let run = end(start(&[&source, path.to_str().unwrap()]));
    ioctl_setflags(&own, IFlags::empty()).unwrap();
    run.fails(1, &["Operation not permitted (EPERM)"]);
}

/// A sink that does not exist yet can be a symlink to a new file.
#[test]
fn a_new_file_behind_a_symlink_is_a_sink_of_a_listener() {
    let dir = dir();
    let (socket, link) = (dir.path().join("s"), dir.path().join("link"));
    std::os::unix::fs::symlink("new", &link).unwrap();
    let source = format!("unix-listen:{}", socket.display());
    let child = start(&[&source, link.to_str().unwrap()]);
    let mut peer = until("a listener", || UnixStream::connect(&socket).ok());
    peer.write_all(b"stream").unwrap();
    drop(peer);
    end(child).ok();
    assert_eq!(read(dir.path().join("new")), b"stream");
}

/// An address of the loopback device that no other test uses.
fn own_address() -> SocketAddrV4 {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, a | 1, b, c), 0)).unwrap();
    match listener.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        std::net::SocketAddr::V6(_) => unreachable!(),
    }
}

/// Whether a socket listens there (`TCP_LISTEN` is 0A, Documentation/networking/proc_net_tcp.rst).
fn listens(at: SocketAddrV4) -> bool {
    let number = u32::from_ne_bytes(at.ip().octets());
    let local = format!("{number:08X}:{:04X}", at.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&&*local) && fields.get(3) == Some(&"0A")
    })
}

/// Starts the command, and connects two peers to it before it accepts the first.
fn before_it_accepts(
    args: &[&str],
    is_up: impl Fn() -> bool,
    connect: impl Fn() -> OwnedFd,
) -> (Owned, [File; 2]) {
    let child = start(args);
    until("a listener", || is_up().then_some(()));
    signal(child.id(), rustix::process::Signal::STOP);
    assert!(next_of(child.id()).stopped());
    let peers = [File::from(connect()), File::from(connect())];
    (child, peers)
}

/// A listener that is closed resets the connections in its queue.
#[test]
fn peers_that_connect_together_reach_endpoints_of_one_address() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let (path, address) = (dir.path().join("s"), own_address());
    for tcp in [false, true] {
        let name = match tcp {
            true => format!("tcp-listen:{address}"),
            false => format!("unix-listen:{}", path.display()),
        };
        let together = |args: &[&str]| {
            let is_up = || match tcp {
                true => listens(address),
                false => is_up(&path, "unix-listen"),
            };
            before_it_accepts(args, is_up, || match tcp {
                true => TcpStream::connect(address).unwrap().into(),
                false => UnixStream::connect(&path).unwrap().into(),
            })
        };
        let resume = |child: &Owned| signal(child.id(), rustix::process::Signal::CONT);
        let (child, peers) = together(&[&name, &name, "-", "--fan-in", "line"]);
        for (mut peer, line) in peers.into_iter().zip([b"one\n", b"two\n"]) {
            peer.write_all(line).unwrap();
        }
        resume(&child);
        let run = end(child);
        let all = String::from_utf8(run.ok().stdout().to_vec()).unwrap();
        let mut lines: Vec<&str> = all.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["one", "two"], "{name}");

        let (child, peers) = together(&[source.to_str().unwrap(), &name, &name]);
        resume(&child);
        for mut peer in peers {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"stream", "{name}");
        }
        end(child).ok();

        // The first is the peer of the source.
        let (child, [mut from, mut to]) = together(&[&name, &name]);
        from.write_all(b"stream").unwrap();
        drop(from);
        resume(&child);
        let mut got = Vec::new();
        to.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"stream", "{name}");
        end(child).ok();
        assert!(!path.exists(), "{name}");
    }
}

/// A datagram socket keeps its address when it has its peer, so a second one cannot be bound.
#[test]
fn a_second_sink_of_one_address_of_datagrams_is_refused_at_once() {
    let dir = dir();
    let source = file(&dir, "source", b"datagram");
    let name = format!("udp-listen:{}", own_address());
    let run = end(start(&[source.to_str().unwrap(), &name, &name]));
    run.fails(1, &["Address already in use (EADDRINUSE)", "sink"]);
}

/// A program that waits for the end of a file's writers would take the old contents for new ones.
#[test]
fn a_program_that_watches_a_sink_is_not_woken_before_the_transfer() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let (dir, watched) = (dir(), dir());
    let socket = dir.path().join("s");
    let name = format!("unix-listen:{}", socket.display());
    let at = |name: &str| watched.path().join(name).display().to_string();
    for names in [&["existing"][..], &["new"], &["new", "existing"]] {
        let sinks: Vec<String> = names.iter().map(|name| at(name)).collect();
        std::fs::write(at("existing"), b"old contents").unwrap();
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&events, watched.path(), WatchFlags::ALL_EVENTS).unwrap();
        let mut args = vec![&*name];
        args.extend(sinks.iter().map(|sink| &**sink));
        let child = apart(|| {
            refuse_executable_memory();
            start(&args)
        });
        until("a listener", || is_up(&socket, "unix-listen").then_some(()));
        let woken = rustix::io::read(&events, &mut [0; 4096]);
        assert_eq!(woken, Err(rustix::io::Errno::AGAIN), "{names:?}");
        let mut peer = UnixStream::connect(&socket).unwrap();
        peer.write_all(b"stream").unwrap();
        drop(peer);
        end(child).ok();
        for sink in &sinks {
            assert_eq!(read(sink), b"stream", "{names:?}");
            std::fs::remove_file(sink).unwrap();
        }
    }
    std::fs::write(at("existing"), b"old contents").unwrap();
    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    add_watch(&events, watched.path(), WatchFlags::CLOSE_WRITE).unwrap();
    call(["explain", "/dev/null", &at("existing")]).ok();
    let woken = rustix::io::read(&events, &mut [0; 4096]);
    assert_eq!(woken, Err(rustix::io::Errno::AGAIN));
}
