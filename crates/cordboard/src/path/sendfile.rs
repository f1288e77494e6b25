//! `sendfile(2)`: from a file's page cache to anything, since Linux 2.6.33
//! (to sockets only before). The kernel splices through a pipe of its own of
//! 16 pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, SeekFrom};

use crate::endpoint::{Kind, Side, reopen};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::common::{COULD_WAIT, UNPAGED, blame, needs_room};
use crate::path::cursor::Cursor;
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::request::Sparse;
use crate::request::Why;

/// One call's bytes: it can run for seconds otherwise, on a non-blocking
/// socket too as long as its reader keeps up; 0x7ffff000 at most anyway.
const PIECE: usize = 2 << 20;

/// From files and block devices, to files, block devices, character devices
/// and stream sockets. Pipes are `splice`'s.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    if !source.kind.is_cached() {
        return Err(Why::Kinds("the source is no file"));
    }
    if sink.append {
        // EINVAL, do_splice_direct in fs/splice.c.
        return Err(Errno::EINVAL.into());
    }
    if source.is_direct() || sink.is_direct() {
        return Err("direct I/O wants aligned buffers".into());
    }
    if source.unpaged {
        return Err(UNPAGED.into());
    }
    if pair.request.sink_offset.is_some() {
        return Err("it writes at the sink's own position only".into());
    }
    if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
        return Err("blocks of zeros are to become holes".into());
    }
    match sink.kind {
        Kind::Tcp | Kind::UnixStream | Kind::StreamSocket => {
            if pair.request.stable {
                return Err("the socket would send the page cache's own pages".into());
            }
            Ok("from the page cache to a socket without a copy")
        }
        Kind::File | Kind::Memfd | Kind::BlockDevice => {
            Ok("from the page cache with one copy in the kernel")
        }
        Kind::CharDevice => Ok("from the page cache to the driver"),
        _ => Err(Why::Kinds("not for this kind of sink")),
    }
}

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EINVAL`, `ENOSYS`, `EOPNOTSUPP` | declined | no splice_read or splice_write there; `O_APPEND` set after open |
/// | `EPERM`, `EACCES`, `EIO`, `EOVERFLOW` | declined if nothing has moved | seccomp; CIFS |
/// | `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`, `ENOBUFS` | declined: of either side | `needs_room` in `path/mod.rs` |
/// | `EAGAIN` | blocked on the sink; on the source, where the sink was ready and reading says the same | a FUSE server |
/// | a blocking socket, and the thread must not block | declined | `Flow::sink_could_wait` |
/// | anything else | failed | |
#[derive(Default)]
pub(crate) struct Sendfile {
    moved: bool,
    /// The last call moved less than it was asked for: up to Linux 6.4 it has
    /// told a connection that more comes (`splice_direct_to_actor`,
    /// fs/splice.c).
    announced: bool,
    /// A description of the sink whose position is used by this transfer alone,
    /// where others may use that of the caller's: the call takes no offset.
    own: Option<OwnedFd>,
}

impl Sendfile {
    pub(super) fn start(flow: &mut Flow<'_>) -> Result<Sendfile, Why> {
        let own = match flow.claims_sink() {
            false => None,
            true => match reopen(flow.sink.fd(), OFlags::WRONLY) {
                Ok(own) => Some(own),
                Err(_) if !flow.has_next() => {
                    // An earlier path may have claimed what this one writes.
                    flow.unclaim_sink();
                    if flow.sink.cursor.claimed().is_some() {
                        return Err("what was claimed of the sink cannot be given back".into());
                    }
                    None
                }
                Err(_) => return Err("others may use the sink's position meanwhile".into()),
            },
        };
        Ok(Sendfile {
            own,
            ..Sendfile::default()
        })
    }

    /// The descriptor whose position is where the sink is written next, and where
    /// that is, if the position is not the caller's.
    fn sink<'a>(&'a self, flow: &Flow<'a>) -> Result<(BorrowedFd<'a>, Option<u64>), Errno> {
        let Some(own) = &self.own else {
            return Ok((flow.sink.fd(), None));
        };
        let place = flow.sink.place()?;
        rustix::fs::seek(own, SeekFrom::Start(place))?;
        Ok((own.as_fd(), Some(place)))
    }
}

impl Step for Sendfile {
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict {
        if flow.sink_could_wait() {
            return Verdict::Declined(COULD_WAIT.into());
        }
        let polled = flow.sink.ready.marked || !flow.sink.kind().is_socket();
        if !flow.sink.may_use(false) {
            return Verdict::Blocked(Side::Sink);
        }
        let mut length = match self.own.is_some() {
            true => flow.claim_both(asked(flow)),
            false => flow.claim_source(asked(flow)),
        };
        if self.own.is_some() && flow.sink.cursor == Cursor::Position {
            // Nothing is claimed, and nothing may be written: it has ended, or goes on
            // by now.
            match flow.source_goes_on() {
                Ok(Some(false)) => return Verdict::Ended,
                _ => length = flow.claim_both(asked(flow)),
            }
        }
        let (sink, place) = match self.sink(flow) {
            Ok(sink) => sink,
            Err(errno) => return Verdict::Declined(errno.into()),
        };
        let (source, offset) = (flow.source.fd(), flow.offset_to_read());
        let mut from = offset;
        let done = flow.write_by(Some(length), || {
            Ok(rustix::fs::sendfile(sink, source, from.as_mut(), length)?)
        });
        match done {
            Ok(0) => Verdict::Ended,
            Ok(n) => {
                self.moved = true;
                self.announced = n < length;
                flow.was_read(offset, n as u64);
                flow.was_written(place, n as u64);
                flow.carried(n as u64)
            }
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            Err(Errno::EAGAIN) if polled => match flow.source_goes_on() {
                Err(Errno::EAGAIN) => Verdict::Blocked(Side::Source),
                _ => Verdict::Blocked(Side::Sink),
            },
            Err(Errno::EAGAIN) => Verdict::Blocked(Side::Sink),
            Err(errno) => match refused(errno, self.moved) {
                Some(why) => Verdict::Declined(why),
                None => blame(flow, errno),
            },
        }
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        if std::mem::take(&mut self.announced) {
            flow.nothing_follows();
        }
    }
}

/// The size to request: not more than the file has, as far as it tells. Old
/// kernels delay the last bytes by 200 ms if more was requested.
fn asked(flow: &Flow<'_>) -> usize {
    let most = flow.want(PIECE);
    match flow.before_its_size() {
        // It may have grown since, or have told a lie.
        None | Some(0) => most,
        Some(bytes) => usize::try_from(bytes).map_or(most, |bytes| bytes.min(most)),
    }
}

fn refused(errno: Errno, moved: bool) -> Option<Why> {
    match errno {
        Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP => {}
        Errno::EPERM | Errno::EACCES | Errno::EIO | Errno::EOVERFLOW if !moved => {}
        errno if needs_room(errno) => {}
        _ => return None,
    }
    Some(errno.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Request, Transfer};
    use testkit::refuse::{OPEN, SEEK, apart, refuse};

    /// The sink's position is behind a range that an earlier path has claimed, and
    /// stays there: what this path writes would leave a hole.
    #[test]
    fn nothing_is_written_behind_a_claim_that_stays() {
        let (source, sink) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let starts = |refused: &'static [libc::c_long]| {
            let mut transfer =
                Transfer::new(source.as_fd(), sink.as_fd(), Request::default()).unwrap();
            let flow = &mut transfer.flow;
            flow.set_has_next(false);
            assert_eq!(flow.claim_sink(100), 100);
            assert!(flow.sink.cursor.claimed().is_some());
            apart(|| {
                refuse(OPEN, libc::EPERM);
                refuse(refused, libc::EPERM);
                let starts = Sendfile::start(&mut transfer.flow).is_ok();
                (starts, transfer.flow.sink.cursor.claimed().is_some())
            })
        };
        assert_eq!(starts(&[libc::SYS_sendfile]), (true, false));
        assert_eq!(starts(&[SEEK]), (false, true));
    }
}
