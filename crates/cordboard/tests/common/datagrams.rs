//! Pairs of datagram sockets.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use cordboard::DataPath;
use cordboard::DataPath::{Datagram, ReadWrite};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

pub const BOTH: [DataPath; 2] = [Datagram, ReadWrite];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Udp,
    Unix,
    Seqpacket,
}

pub const SORTS: [Sort; 3] = [Sort::Udp, Sort::Unix, Sort::Seqpacket];

pub fn pair(sort: Sort) -> (OwnedFd, OwnedFd) {
    match sort {
        Sort::Udp => {
            let a = UdpSocket::bind("127.0.0.1:0").unwrap();
            let b = UdpSocket::bind("127.0.0.1:0").unwrap();
            a.connect(b.local_addr().unwrap()).unwrap();
            b.connect(a.local_addr().unwrap()).unwrap();
            (a.into(), b.into())
        }
        Sort::Unix => {
            let (a, b) = UnixDatagram::pair().unwrap();
            (a.into(), b.into())
        }
        Sort::Seqpacket => {
            let kind = SocketType::SEQPACKET;
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
        }
    }
}

pub fn put(fd: &OwnedFd, bytes: &[u8]) {
    assert_eq!(send(fd, bytes, SendFlags::empty()), Ok(bytes.len()));
}

/// Receives the datagrams that are queued, of any length, without waiting.
pub fn all(fd: &OwnedFd) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 5 << 20];
    // A receive returns 0 for an empty datagram and at the end, so the number
    // is limited.
    while let Ok((n, _)) = recv(fd, &mut buffer[..], RecvFlags::DONTWAIT) {
        all.push(buffer[..n].to_vec());
        if all.len() == 1000 {
            break;
        }
    }
    all
}

pub fn idle() -> Option<Duration> {
    Some(Duration::from_millis(1))
}
