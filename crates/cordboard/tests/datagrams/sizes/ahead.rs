//! A host that has set `SO_PEEK_OFF` (`socket(7)`).

use std::os::fd::{AsRawFd, OwnedFd};

use cordboard::{Request, Size};

use super::option;
use crate::common::datagrams::{BOTH, SORTS, Sort, all, pair, put};
use crate::common::{only, pattern, run, watchdog};

/// The transfer peeks at the next datagram from its beginning, whatever the host's
/// `SO_PEEK_OFF` is. The option is left as a receive leaves it.
#[test]
fn a_size_holds_where_the_host_looks_ahead() {
    let _dog = watchdog("a_size_holds_where_the_host_looks_ahead");
    let lengths = [700, 800, 900];
    let data = pattern(2400);
    for sort in SORTS {
        for path in BOTH {
            for ahead in [0, 1, 750, 1600, 5000] {
                for (size, moved) in [(600, 0), (1400, 700), (1500, 1500), (2400, 2400)] {
                    let what = format!("{sort:?} {path} {ahead} {size}");
                    let (source, peer) = pair(sort);
                    let mut at = 0;
                    for length in lengths {
                        put(&peer, &data[at..at + length]);
                        at += length;
                    }
                    option(&source, libc::SOL_SOCKET, libc::SO_PEEK_OFF, ahead).unwrap();
                    let (sink, far) = pair(Sort::Unix);
                    let request = Request {
                        size: Size::Bytes(size),
                        ..only(&[path])
                    };
                    let report = run(&source, &sink, request).report;
                    assert_eq!(report.written, moved, "{what}: {report:?}");
                    assert!(all(&far).concat() == data[..moved as usize], "{what}");
                    let left = i64::from(ahead) - moved as i64;
                    assert_eq!(ahead_of(&source), left.max(0), "{what}");
                    assert!(all(&source).concat() == data[moved as usize..], "{what}");
                }
            }
        }
    }
}

/// `SO_PEEK_OFF`.
fn ahead_of(fd: &OwnedFd) -> i64 {
    let mut value: libc::c_int = -1;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let at = (&raw mut value).cast();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    // SAFETY: the kernel writes an i32.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut length) };
    assert_eq!(done, 0);
    value.into()
}
