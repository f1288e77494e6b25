//! Addresses of the sockets, which a transfer does not change.

use std::io::Read;
use std::os::fd::OwnedFd;

use crate::common::datagrams::{BOTH, Sort, pair, put};
use crate::common::{only, watchdog};
use cordboard::{Ended, Transfer};
use rustix::net::{RecvFlags, getsockname, recv};

/// A send on a UNIX socket with `SO_PASSCRED` gives the socket an address
/// (`unix_autobind`, net/unix/af_unix.c). The transfer to a stream needs the option only
/// once it has received a message of 0 bytes.
#[test]
fn a_source_that_is_also_written_to_gets_no_address() {
    let _dog = watchdog("a_source_that_is_also_written_to_gets_no_address");
    for path in BOTH {
        let (near, far) = pair(Sort::Seqpacket);
        let before = getsockname(&near).unwrap();
        let (mut reader, sink) = std::io::pipe().unwrap();
        let source = near.try_clone().unwrap();
        let transfer = Transfer::owning(source, OwnedFd::from(sink), only(&[path])).unwrap();
        let running = transfer.start().unwrap();
        for messages in [&[&b"one"[..]][..], &[b"", b"two"]] {
            messages.iter().for_each(|message| put(&far, message));
            reader.read_exact(&mut [0; 3]).unwrap();
            put(&near, b"back");
            let got = recv(&far, &mut [0; 8], RecvFlags::empty());
            assert_eq!(got.unwrap().1, 4);
            assert_eq!(getsockname(&near), Ok(before.clone()), "{path}");
        }
        put(&far, b"");
        drop(far);
        let report = running.wait().report;
        let end = (report.ended, report.written, report.path.as_slice());
        assert_eq!(end, (Ended::Eof, 6, &[path][..]), "{report:?}");
    }
}
