//! Sockets that refuse flags which others accept, and filters that refuse the calls
//! with flags.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cordboard::DataPath::{Datagram, ReadWrite};
use cordboard::{Ended, Errno, Report, Request};
use testkit::refuse::{apart, refuse, refuse_where};

use crate::common::datagrams::{BOTH, SORTS, Sort, all, idle, pair, put};
use crate::common::{content_of, only, pattern, run, watchdog};

/// Makes two packet sockets for a private protocol on the loopback device. `None` if
/// the kernel lacks or refuses them.
fn frames(test: u16) -> Option<(OwnedFd, OwnedFd)> {
    // Another run of these tests at the same time has another protocol.
    let protocol = 0x9000 | (std::process::id() as u16 & 0x07ff) << 1 | test;
    let one = || {
        let protocol = protocol.to_be();
        // SAFETY: takes integers.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
                i32::from(protocol),
            )
        };
        if fd < 0 {
            return None;
        }
        // SAFETY: made above, and owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = protocol;
        // SAFETY: the name ends with a zero.
        at.sll_ifindex = unsafe { libc::if_nametoindex(c"lo".as_ptr()) } as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address outlives the call, and is as long as that.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const at).cast(), length) };
        (bound == 0).then_some(fd)
    };
    // Both sockets receive every frame: only the other end is read.
    Some((one()?, one()?))
}

/// A packet socket as the source refuses the flag for descriptors in messages.
#[test]
fn frames_are_received() {
    let _dog = watchdog("frames_are_received");
    let Some((feed, source)) = frames(0) else {
        return testkit::skip::here("packet sockets take CAP_NET_RAW");
    };
    let sent: Vec<_> = [100, 46, 1400, 1].map(pattern).to_vec();
    let joined = sent.concat();
    for path in BOTH {
        for refused in [None, Some(libc::EINVAL), Some(libc::EOPNOTSUPP)] {
            let request = || Request {
                idle: idle(),
                ..only(&[path])
            };
            let (writer, reader) = (pair(Sort::Unix), std::io::pipe().unwrap());
            for to_pipe in [false, true] {
                sent.iter().for_each(|bytes| put(&feed, bytes));
                let report = apart(|| {
                    if let Some(errno) = refused {
                        // CAN (J1939) and ATM sockets refuse the flag in this way.
                        let look = libc::MSG_DONTWAIT | libc::MSG_PEEK;
                        for others in [0, libc::MSG_DONTWAIT, look] {
                            let flags = (libc::MSG_TRUNC | others) as u32;
                            refuse_where(libc::SYS_recvfrom, 3, flags, errno);
                        }
                    }
                    match to_pipe {
                        true => run(&source, &reader.1, request()).report,
                        false => run(&source, &writer.0, request()).report,
                    }
                });
                let what = format!("{path}, pipe {to_pipe}, refused {refused:?}: {report:?}");
                assert_eq!(report.ended, Ended::Idle, "{what}");
                assert_eq!(report.written, joined.len() as u64, "{what}");
                assert_eq!(report.path, [path], "{what}");
                if !to_pipe {
                    assert!(all(&writer.1) == sent, "{what}");
                }
            }
            drop(reader.1);
            assert!(content_of(reader.0) == joined);
        }
    }
}

/// A sink that refuses `MSG_NOSIGNAL`, as QIPCRTR and MCTP sockets do.
#[test]
fn frames_are_sent_without_the_flag_that_is_refused() {
    let _dog = watchdog("frames_are_sent_without_the_flag_that_is_refused");
    let Some((sink, end)) = frames(1) else {
        return testkit::skip::here("packet sockets take CAP_NET_RAW");
    };
    let sent: Vec<_> = [100, 46, 1400, 1].map(pattern).to_vec();
    for from in SORTS {
        for path in BOTH {
            let (feed, source) = pair(from);
            sent.iter().for_each(|bytes| put(&feed, bytes));
            let report = apart(|| {
                for waits in [0, libc::MSG_DONTWAIT] {
                    let flags = (libc::MSG_NOSIGNAL | waits) as u32;
                    refuse_where(libc::SYS_sendto, 3, flags, libc::EINVAL);
                }
                refuse(&[libc::SYS_sendmmsg], libc::EINVAL);
                let request = Request {
                    idle: idle(),
                    ..only(&[path])
                };
                run(&source, &sink, request).report
            });
            let what = format!("{from:?} by {path}: {report:?}");
            assert_eq!(report.ended, Ended::Idle, "{what}");
            assert_eq!(report.written, 1547, "{what}");
            assert!(all(&end) == sent, "{what}");
        }
    }
}

/// An empty message without credentials is the end. If a filter refuses
/// `recvmsg(2)`, which returns credentials, `poll(2)` shows the end.
#[test]
fn an_end_is_found_where_nothing_is_told_beside_it() {
    let _dog = watchdog("an_end_is_found_where_nothing_is_told_beside_it");
    let sent: Vec<_> = [100, 0, 50, 0].map(pattern).to_vec();
    for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS] {
        for batches in [false, true] {
            for to_pipe in [false, true] {
                let (feed, source) = pair(Sort::Seqpacket);
                sent.iter().for_each(|bytes| put(&feed, bytes));
                drop(feed);
                let (sink, end) = pair(Sort::Seqpacket);
                let (reader, writer) = std::io::pipe().unwrap();
                let report: Report = apart(|| {
                    refuse(&[libc::SYS_recvmsg], errno.raw());
                    if !batches {
                        refuse(&[libc::SYS_recvmmsg], errno.raw());
                    }
                    let request = only(&[Datagram, ReadWrite]);
                    match to_pipe {
                        true => run(&source, &writer, request).report,
                        false => run(&source, &sink, request).report,
                    }
                });
                let what = format!("{errno}, {batches}, pipe {to_pipe}: {report:?}");
                assert_eq!(report.ended, Ended::Eof, "{what}");
                assert_eq!(report.written, 150, "{what}");
                drop((sink, writer));
                if to_pipe {
                    assert!(content_of(reader) == sent.concat(), "{what}");
                } else {
                    let got: Vec<_> = all(&end).into_iter().filter(|m| !m.is_empty()).collect();
                    let full: Vec<_> = sent.iter().filter(|m| !m.is_empty()).cloned().collect();
                    assert!(got == full, "{what}");
                }
            }
        }
    }
}
