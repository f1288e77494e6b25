//! Connections if a filter refuses the calls to wait with.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};

use testkit::refuse::{POLL, PPOLL, refuse};

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
