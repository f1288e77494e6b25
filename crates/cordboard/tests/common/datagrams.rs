//! Pairs of datagram sockets.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use cordboard::DataPath;
use cordboard::DataPath::{Datagram, ReadWrite};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
    deliver_to(fd);
}

/// Waits for the loopback device if the socket may use it.
fn deliver_to(fd: &OwnedFd) {
    if sockopt::socket_domain(fd) == Ok(AddressFamily::INET) {
        deliver();
    }
}

/// Returns once the loopback device has delivered what was sent before. A soft interrupt
/// delivers it, which the kernel may defer to a thread (`ksoftirqd`). Each processor has a
/// queue, in which a datagram of this function comes last.
pub fn deliver() {
    let allowed = sched_getaffinity(None).unwrap();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).unwrap();
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.connect(own.local_addr().unwrap()).unwrap();
        own.send(b"last").unwrap();
        own.recv(&mut [0; 4]).unwrap();
    }
    sched_setaffinity(None, &allowed).unwrap();
}

/// Receives the datagrams that are queued, of any length, without waiting.
pub fn all(fd: &OwnedFd) -> Vec<Vec<u8>> {
    deliver_to(fd);
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
