//! Connections if a filter refuses the calls to wait with.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;

use testkit::refuse::{ACCEPT, FACCESSAT2, OPEN, POLL, PPOLL, SELECT, refuse, refuse_where};

use super::common::*;
use super::{address, start};

const ERRNOS: [i32; 3] = [libc::EPERM, libc::EACCES, libc::ENOSYS];

/// The C library starts without `ppoll(2)` where there is `poll(2)`.
#[test]
fn a_connection_is_waited_for_by_an_older_call() {
    if POLL.is_empty() {
        return testkit::skip::report("an older call", "this architecture has none");
    }
    for errno in ERRNOS {
        let mut child = apart(|| {
            refuse(PPOLL, errno);
            start(&["tcp-listen:127.0.0.1:0", "-"])
        });
        let mut stream = TcpStream::connect(address(&mut child)).unwrap();
        stream.write_all(b"stream").unwrap();
        drop(stream);
        assert_eq!(end(child).ok().stdout(), b"stream", "{errno}");
    }
}

#[test]
fn a_connection_is_accepted_by_an_older_call() {
    if ACCEPT.len() < 2 {
        return testkit::skip::report("an older call", "this architecture has none");
    }
    for errno in ERRNOS {
        let mut child = apart(|| {
            refuse(&[libc::SYS_accept4], errno);
            start(&["tcp-listen:127.0.0.1:0", "-"])
        });
        let mut stream = TcpStream::connect(address(&mut child)).unwrap();
        stream.write_all(b"stream").unwrap();
        drop(stream);
        assert_eq!(end(child).ok().stdout(), b"stream", "{errno}");
    }
}

/// The first datagram identifies the peer.
#[test]
fn a_peer_is_known_without_recvfrom() {
    let dir = dir();
    let source = file(&dir, "source", b"datagram");
    for errno in ERRNOS {
        let mut child = apart(|| {
            refuse(&[libc::SYS_recvfrom], errno);
            start(&[source.to_str().unwrap(), "udp-listen:127.0.0.1:0"])
        });
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.connect(address(&mut child)).unwrap();
        peer.send(b"hello").unwrap();
        end(child).ok();
        let mut got = [0; 100];
        let n = peer.recv(&mut got).unwrap();
        assert_eq!(&got[..n], b"datagram", "{errno}");
    }
}

/// The filters of older containers do not know the call.
#[test]
fn sinks_that_are_examined_need_no_faccessat2() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let (mut master, terminal) = terminal_of(80);
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let name = name.to_str().unwrap();
    let with_fifo = dir.path().join("fifo");
    let with_fifo = fifo(&with_fifo);
    for errno in ERRNOS {
        let filtered = |args: &[&str]| {
            apart(|| {
                refuse(&[FACCESSAT2], errno);
                piped(cordboard().args(args))
            })
        };
        end(filtered(&["splice", source.to_str().unwrap(), name])).ok();
        let mut got = [0; 6];
        master.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"stream", "{errno}");
        let explained = end(filtered(&["explain", source.to_str().unwrap(), name]));
        let text = String::from_utf8(explained.ok().stdout().to_vec()).unwrap();
        assert!(text.contains("terminal"), "{errno}: {text}");

        for sink in ["new", "existing"] {
            let sink = dir.path().join(sink);
            if sink.ends_with("existing") {
                std::fs::write(&sink, b"longer than the stream").unwrap();
            }
            let child = filtered(&["splice", with_fifo, sink.to_str().unwrap()]);
            // ENXIO without a reader.
            let mut options = std::fs::File::options();
            let writer = options.write(true).custom_flags(libc::O_NONBLOCK);
            let mut writer = until("a reader", || writer.open(with_fifo).ok());
            writer.write_all(b"stream").unwrap();
            drop(writer);
            end(child).ok();
            assert_eq!(read(&sink), b"stream", "{errno}");
            std::fs::remove_file(&sink).unwrap();
        }
    }
    drop(terminal);
}

#[test]
fn the_path_that_declined_is_named_if_none_is_left() {
    let dir = dir();
    let source = file(&dir, "source", b"stream");
    let sink = dir.path().join("sink");
    let run = apart(|| {
        refuse(&[libc::SYS_splice], libc::EINVAL);
        run(cordboard()
            .args(["splice", "--route", "splice"])
            .args([&source, &sink]))
    });
    let says =
        "sink: no usable data path is left: splice: Invalid argument (EINVAL), after 0 bytes";
    run.fails(
        1,
        &[says, "; allow another path: see --route and --without"],
    );
}

/// As on NFS or vfat.
#[test]
fn a_new_file_is_explained_without_unnamed_files() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    const LARGEFILE: i32 = 0o100_000;
    let (dir, there) = (dir(), dir());
    let source = file(&dir, "source", &bytes(100_000));
    let new = there.path().join("new");
    let explained = |flags: &[i32]| {
        let child = apart(|| {
            for (call, flags) in OPEN
                .iter()
                .flat_map(|call| flags.iter().map(move |f| (*call, *f)))
            {
                let index = if call == libc::SYS_openat { 2 } else { 1 };
                refuse_where(call, index, flags as u32, libc::EOPNOTSUPP);
            }
            piped(
                cordboard()
                    .args(["explain", "--json"])
                    .args([&source, &new]),
            )
        });
        let run = end(child);
        serde_json::from_slice::<serde_json::Value>(run.ok().stdout()).unwrap()
    };
    let usual = explained(&[]);
    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    add_watch(&events, there.path(), WatchFlags::ALL_EVENTS).unwrap();
    let unnamed = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_TMPFILE;
    let without = explained(&[unnamed, unnamed | LARGEFILE]);
    assert_eq!(
        rustix::io::read(&events, &mut [0; 4096]),
        Err(rustix::io::Errno::AGAIN)
    );
    assert_eq!(without["paths"], usual["paths"]);
    for fact in ["filesystem", "kind", "note", "size"] {
        assert_eq!(without["sink"][fact], usual["sink"][fact], "{fact}");
    }
}

/// Neither the source nor a sink has failed, and no other file for the buffer helps.
#[test]
fn several_transfers_that_cannot_wait_say_so() {
    let dir = dir();
    let other = file(&dir, "other", b"");
    let sinks = ["one", "two"].map(|name| dir.path().join(name));
    let [other, one, two] = [&other, &sinks[0], &sinks[1]].map(|path| path.to_str().unwrap());
    let cases = [
        (&["-", one, two][..], "standard input to the sinks"),
        (&["--fan-in", "turn", "-", other, one], "the sources to"),
        (&["--buffer", "1M", "-", one], "standard input to"),
    ];
    for (args, operand) in cases {
        let mut child = apart(|| {
            for calls in [PPOLL, POLL, SELECT] {
                refuse(calls, libc::EPERM);
            }
            start(&[args, &["--json"]].concat())
        });
        // The source stays silent.
        let feed = child.stdin.take();
        let run = end(child);
        drop(feed);
        let hint = "poll(2) and select(2) are refused";
        run.fails(1, &[operand, "EPERM", "after 0 bytes", hint]);
        let account = run.json();
        assert_eq!(account["failed"], serde_json::Value::Null, "{account}");
        assert_eq!(
            (&account["ended"], &account["errno"]),
            (&"error".into(), &"EPERM".into())
        );
    }
}
