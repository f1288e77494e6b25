//! The pairs that splice accepts.

use super::pipe_lock::waits_with_pipe_locked;
use crate::endpoint::{Facts, Kind};
use crate::errno::Errno;
use crate::pair::{Capabilities, Pair};
use crate::path::common::checks::{RECORDS, UNPAGED};
use crate::path::verdict::Takes;
use crate::request::Sparse;
use crate::request::Why;

/// Why no pages are taken from a source that [may have records](Facts::has_pieces). Before Linux
/// 5.10, a driver without `splice_read` gets a read of each page (`default_file_splice_read`,
/// fs/splice.c; `do_loop_readv_writev`, fs/read_write.c). A tape passes over a block that is longer
/// than the read, and returns `ENOMEM` (`read_tape`, drivers/scsi/st.c); other drivers drop the
/// rest of a record. Since then such a driver refuses pages with `EINVAL`.
const RECORDS_TO_READ: &str = "each read of the source may be a record";

/// Accepts any source that provides pages with any sink that accepts them.
pub(crate) fn takes(pair: &Pair<'_>, can: &Capabilities) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    readable(source)?;
    writable(sink)?;
    if pair.request.stable && !sink.kind.is_cached() {
        if source.kind.is_cached() {
            return Err("the sink would get page cache pages, which may still change".into());
        }
        // Its writer may have filled it by `splice(2)` or `sendfile(2)`.
        if source.kind.is_pipe() || source.kind.is_stream_socket() {
            return Err("the source may hold page cache pages, which may still change".into());
        }
    }
    if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
        return Err("the request turns blocks of zeros into holes".into());
    }
    let pipe = source.kind.is_pipe() || sink.kind.is_pipe();
    if pipe && !waits_with_pipe_locked(source, sink) {
        Ok("one end is a pipe: pages move without a copy")
    } else if can.private_pipe {
        Ok("through a private pipe")
    } else {
        Err(Errno::EMFILE.into())
    }
}

fn readable(source: &Facts) -> Result<(), Why> {
    match source.kind {
        // A tty is read with the pipe's lock held, which blocks every other user
        // of the pipe until the next line is typed.
        Kind::Tty => Err("a terminal would be read with the pipe locked".into()),
        // EINVAL: they have no splice_read.
        Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify => Err(Errno::EINVAL.into()),
        // Some files of /proc refuse it, some of /sys accept it; none gains.
        Kind::Pseudo => Err("a pseudo-file gains nothing from splice".into()),
        Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket => {
            Err("a pipe does not keep datagram boundaries".into())
        }
        _ if source.has_pieces() => Err(RECORDS_TO_READ.into()),
        _ if source.unpaged => Err(UNPAGED.into()),
        _ if source.is_direct() => Err("direct I/O needs aligned buffers".into()),
        _ => Ok(()),
    }
}

fn writable(sink: &Facts) -> Result<(), Why> {
    match sink.kind {
        // EINVAL, do_splice in fs/splice.c; pipes take another branch there.
        kind if sink.append && !kind.is_pipe() => Err(Errno::EINVAL.into()),
        Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify => Err(Errno::EINVAL.into()),
        Kind::Pseudo => Err("writes to a pseudo-file are commands, to be kept whole".into()),
        Kind::Tty => Err("a terminal does not accept pages".into()),
        _ if sink.has_pieces() => Err(RECORDS.into()),
        // Spliced buffers keep their flags, and only a write makes a packet
        // (`splice_pipe_to_pipe`, fs/splice.c): a short read would also take a
        // part of the next packet.
        _ if sink.is_packet_pipe() => Err("the sink's reader expects packets".into()),
        Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket => {
            Err("pages would be sent as datagrams of any size".into())
        }
        _ if sink.is_direct() => Err("direct I/O needs aligned buffers".into()),
        _ => Ok(()),
    }
}
