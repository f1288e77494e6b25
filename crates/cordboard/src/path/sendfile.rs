//! `sendfile(2)`: from a file's page cache to any descriptor, since Linux 2.6.33
//! (before, to sockets only). The kernel splices through an internal pipe of 16 pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, SeekFrom};

use crate::endpoint::{Kind, Side, reopen};
use crate::errno::Errno;
use crate::pair::Pair;
use crate::path::common::checks::{
    COULD_WAIT, DEFERRED, RECORDS, UNPAGED, blame, defers_connection, needs_room,
};
use crate::path::flow::Flow;
use crate::path::step::Step;
use crate::path::verdict::{Takes, Verdict};
use crate::request::Sparse;
use crate::request::Why;
use crate::sys;

/// Bytes per call: a longer one can run for seconds, also on a non-blocking socket
/// whose reader keeps up. The kernel's limit is 0x7ffff000.
const PIECE: usize = 2 << 20;

/// Accepts files and block devices as the source, and files, block devices, memory
/// devices and stream sockets as the sink. Pipes are left to `splice`.
pub(crate) fn takes(pair: &Pair<'_>) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    if !source.kind.is_cached() {
        return Err(Why::Kinds("the source is not a file"));
    }
    if sink.append {
        // EINVAL, do_splice_direct in fs/splice.c.
        return Err(Errno::EINVAL.into());
    }
    if source.is_direct() || sink.is_direct() {
        return Err("direct I/O needs aligned buffers".into());
    }
    if source.unpaged {
        return Err(UNPAGED.into());
    }
    if pair.request.sink_offset.is_some() {
        return Err("sendfile writes at the sink's file position only".into());
    }
    if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
        return Err("the request turns blocks of zeros into holes".into());
    }
    match sink.kind {
        Kind::Tcp | Kind::UnixStream => {
            if pair.request.stable {
                return Err(
                    "the socket would send page cache pages, which may still change".into(),
                );
            }
            Ok("from the page cache to a socket without a copy")
        }
        // Up to Linux 6.4 all bytes but the last piece have MSG_MORE. SCTP holds them back until
        // they fill a packet, also while its send buffer has no room for more
        // (`sctp_packet_can_append_data`, net/sctp/output.c).
        Kind::StreamSocket => Err("the socket may hold back what is sent with MSG_MORE".into()),
        Kind::File | Kind::Memfd | Kind::BlockDevice => {
            Ok("from the page cache with one copy in the kernel")
        }
        Kind::CharDevice if sink.has_pieces() => Err(RECORDS.into()),
        Kind::CharDevice => Ok("from the page cache to the driver"),
        _ => Err(Why::Kinds("this kind of sink is not supported")),
    }
}

/// | errno | verdict | evidence |
/// |---|---|---|
/// | `EINVAL`, `ENOSYS`, `EOPNOTSUPP` | declined | no splice_read or splice_write; `O_APPEND` set after open |
/// | `EOVERFLOW` | declined | the position is at the lesser of both file systems' maximum sizes (`do_sendfile`, fs/read_write.c) |
/// | `EPERM`, `EACCES`, `EIO` | declined if nothing has moved | seccomp; CIFS |
/// | `EACCES` that is not returned again | failed: the error of a connection | `sys/attempt.rs` |
/// | `ENOSPC`, `EDQUOT`, `EFBIG`, `ENOMEM`, `ENOBUFS` | declined: may be of either side | `needs_room` in `path/common/checks.rs` |
/// | `EMSGSIZE` | declined: a socket that takes only shorter sends | `Sender` in `path/common/socket.rs` |
/// | `EAGAIN` | blocked on the sink; on the source, if the sink was ready and a read returns the same | a FUSE server |
/// | a blocking socket on a thread that must not block | declined | `Flow::sink_could_wait` |
/// | a connection that is deferred to the first send | declined at the start | `defers_connection` in `path/common/checks.rs` |
/// | anything else | failed | |
pub(crate) struct Sendfile {
    piece: usize,
    moved: bool,
    /// The last call was short: up to Linux 6.4 the kernel has then set `MSG_MORE` on
    /// the connection (`splice_direct_to_actor`, fs/splice.c).
    announced: bool,
    /// A private open file description of the sink, if other processes may use the
    /// caller's file position: the call takes no offset for the sink.
    own: Option<OwnedFd>,
}

impl Sendfile {
    pub(super) fn start(flow: &mut Flow<'_>) -> Result<Sendfile, Why> {
        if defers_connection(flow) {
            return Err(DEFERRED.into());
        }
        let own = match flow.claims_sink() {
            false => None,
            true => match reopen(flow.sink.fd(), OFlags::WRONLY) {
                Ok(own) => Some(own),
                Err(_) if !flow.has_next() => {
                    // An earlier path may have claimed the range that this one writes.
                    flow.release_sink_claim();
                    if flow.sink.cursor.claimed().is_some() {
                        return Err("the sink's file position cannot be moved back".into());
                    }
                    None
                }
                Err(_) => return Err("other processes may use the sink's file position".into()),
            },
        };
        Ok(Sendfile {
            own,
            piece: PIECE,
            moved: false,
            announced: false,
        })
    }

    /// Returns the descriptor whose position is at the sink's cursor, and that offset
    /// if the position is not the caller's.
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
        let length = match self.own.is_some() {
            true => flow.claim_to_write(|flow| asked(flow, self.piece)),
            false => Some(flow.claim_source(asked(flow, self.piece))),
        };
        let Some(length) = length else {
            return Verdict::Ended;
        };
        let (sink, place) = match self.sink(flow) {
            Ok(sink) => sink,
            Err(errno) => return Verdict::Declined(errno.into()),
        };
        let (source, offset) = (flow.source.fd(), flow.offset_to_read());
        let mut from = offset;
        let mut call = || Ok(rustix::fs::sendfile(sink, source, from.as_mut(), length)?);
        let done = flow.write_by(Some(length), || sys::attempt(&mut call));
        if let Err(error) = done
            && error.was_pending()
        {
            return blame(flow, error.errno);
        }
        match done.map_err(Errno::from) {
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

    fn piece(&self) -> Option<usize> {
        Some(self.piece)
    }

    fn set_piece(&mut self, bytes: usize) {
        self.piece = bytes;
    }

    fn finish(&mut self, flow: &mut Flow<'_>) {
        if std::mem::take(&mut self.announced) {
            flow.nothing_follows();
        }
        if let Some(own) = self.own.take() {
            flow.close_sink(own);
        }
    }
}

/// Returns the size to request: no more than the file has, as far as it reports. Old
/// kernels delay the last bytes by 200 ms if more was requested.
fn asked(flow: &Flow<'_>, piece: usize) -> usize {
    let most = flow.want(piece);
    match flow.before_its_size() {
        // It may have grown since, or report a wrong size.
        None | Some(0) => most,
        Some(bytes) => usize::try_from(bytes).map_or(most, |bytes| bytes.min(most)),
    }
}

fn refused(errno: Errno, moved: bool) -> Option<Why> {
    match errno {
        Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP => {}
        Errno::EOVERFLOW | Errno::EMSGSIZE => {}
        Errno::EPERM | Errno::EACCES | Errno::EIO if !moved => {}
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

    /// The kernel compares the source's position with the maximum size of the sink's file
    /// system: a position that is too large for the call may be valid for a read.
    #[test]
    fn an_offset_that_is_too_large_is_left_to_the_next_path() {
        for moved in [false, true] {
            assert_eq!(
                refused(Errno::EOVERFLOW, moved),
                Some(Errno::EOVERFLOW.into())
            );
            assert_eq!(refused(Errno::EIO, moved).is_some(), !moved);
        }
    }

    /// The sink's position is past a range that an earlier path has claimed, and stays
    /// there: a write by this path would leave a hole.
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
