//! Datagrams that the kernel has joined (`UDP_GRO`), if no call reports their
//! boundaries.

use cordboard::{Ended, Errno, Request, Side};

use super::option;
use crate::common::datagrams::{BOTH, Sort, all, idle, pair, put};
use crate::common::{content, only, pattern, run, watchdog};

/// A filter refuses the call that reports their length: they are moved to a stream,
/// and not sent as one datagram. The same if no call reports whether the option is
/// set.
#[test]
fn what_cannot_come_apart_is_not_sent_as_one() {
    use testkit::refuse::{apart, refuse};
    let name = "what_cannot_come_apart_is_not_sent_as_one";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::JoinedDatagrams]) {
        return;
    }
    let data = pattern(2500);
    let told = [libc::SYS_recvmsg, libc::SYS_recvmmsg];
    let untold = [&told[..], &[libc::SYS_getsockopt]].concat();
    for (calls, errno) in [&told[..], &untold]
        .into_iter()
        .flat_map(|calls| [Errno::EPERM, Errno::ENOSYS, Errno::EACCES].map(|errno| (calls, errno)))
    {
        for set in [true, false] {
            for path in BOTH.into_iter().filter(|_| calls.len() < 3 || set) {
                let ((a, source), (sink, b)) = (pair(Sort::Udp), pair(Sort::Unix));
                option(&source, libc::SOL_UDP, libc::UDP_GRO, set.into()).unwrap();
                option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
                put(&a, &data);
                let request = || Request {
                    idle: idle(),
                    ..only(&[path, cordboard::DataPath::ReadWrite])
                };
                let file = tempfile::tempfile().unwrap();
                let [datagrams, stream] = apart(|| {
                    refuse(calls, errno.raw());
                    let first = run(&source, &sink, request()).report;
                    if !set {
                        put(&a, &data);
                    }
                    [first, run(&source, &file, request()).report]
                });
                let case = format!("{calls:?} {errno} {set} {path}: {datagrams:?} {stream:?}");
                let ended = (datagrams.ended, datagrams.failed, datagrams.errno);
                match set {
                    true => {
                        let expected = (Ended::Error, Some(Side::Source), Some(errno));
                        assert_eq!(ended, expected, "{case}");
                        assert_eq!(all(&b).len(), 0, "{case}");
                    }
                    false => {
                        let lengths: Vec<usize> = all(&b).iter().map(Vec::len).collect();
                        assert_eq!(lengths, [1000, 1000, 500], "{case}");
                    }
                }
                assert_eq!(stream.errno, None, "{case}");
                assert!(content(&file) == data, "{case}");
            }
        }
    }
}

/// A pipe in packet mode keeps them apart, as a datagram socket does.
#[test]
fn what_was_joined_is_as_many_packets() {
    use rustix::pipe::{PipeFlags, pipe_with};
    use testkit::refuse::{apart, refuse};
    let name = "what_was_joined_is_as_many_packets";
    let _dog = watchdog(name);
    if testkit::needs::missing(name, &[testkit::needs::Need::JoinedDatagrams]) {
        return;
    }
    let data = pattern(2500);
    for refused in [false, true] {
        let (a, source) = pair(Sort::Udp);
        option(&source, libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
        option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, 1000).unwrap();
        put(&a, &data);
        let flags = PipeFlags::DIRECT | PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        let (out, sink) = pipe_with(flags).unwrap();
        let request = Request {
            idle: idle(),
            ..only(&[cordboard::DataPath::ReadWrite])
        };
        let report = apart(|| {
            if refused {
                refuse(&[libc::SYS_recvmsg], Errno::EPERM.raw());
            }
            run(&source, &sink, request).report
        });
        let mut packet = [0; 4096];
        let lengths: Vec<usize> =
            std::iter::from_fn(|| rustix::io::read(&out, &mut packet).ok()).collect();
        let (expected, errno): (&[usize], _) = match refused {
            false => (&[1000, 1000, 500], None),
            true => (&[], Some(Errno::EPERM)),
        };
        assert_eq!(lengths, expected, "{report:?}");
        assert_eq!(report.errno, errno, "{report:?}");
    }
}
