//! Which pairs are spliced.

use super::apart::apart;
use crate::endpoint::{Facts, Kind};
use crate::errno::Errno;
use crate::pair::{Capabilities, Pair};
use crate::path::common::UNPAGED;
use crate::path::verdict::Takes;
use crate::request::Sparse;
use crate::request::Why;

/// Anything with pages to give to anything that takes pages.
pub(crate) fn takes(pair: &Pair<'_>, can: &Capabilities) -> Takes {
    let (source, sink) = (pair.source, pair.sink);
    readable(source)?;
    writable(sink)?;
    if pair.request.stable && !sink.kind.is_cached() {
        if source.kind.is_cached() {
            return Err("the sink would get the page cache's own pages".into());
        }
        // Its writer may have filled it by `splice(2)` or `sendfile(2)`.
        if source.kind.is_pipe() || source.kind.is_stream_socket() {
            return Err("what the source holds may be the page cache's own pages".into());
        }
    }
    if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
        return Err("blocks of zeros are to become holes".into());
    }
    let pipe = source.kind.is_pipe() || sink.kind.is_pipe();
    if pipe && !apart(source, sink) {
        Ok("one end is a pipe: pages move, bytes are not copied")
    } else if can.private_pipe {
        Ok("through a private pipe")
    } else {
        Err(Errno::EMFILE.into())
    }
}

fn readable(source: &Facts) -> Result<(), Why> {
    match source.kind {
        // A tty is read with the pipe's lock held, which stops everybody else
        // who uses the pipe until the next line is typed.
        Kind::Tty => Err("a terminal would be read with the pipe locked".into()),
        // EINVAL: they have no splice_read.
        Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify => Err(Errno::EINVAL.into()),
        // Some of /proc refuses, some of /sys takes it; none gains by it.
        Kind::Pseudo => Err("made up on the fly: nothing to gain".into()),
        Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket => {
            Err("a pipe keeps no boundaries between datagrams".into())
        }
        _ if source.unpaged => Err(UNPAGED.into()),
        _ if source.is_direct() => Err("direct I/O wants aligned buffers".into()),
        _ => Ok(()),
    }
}

fn writable(sink: &Facts) -> Result<(), Why> {
    match sink.kind {
        // EINVAL, do_splice in fs/splice.c; pipes go another way there.
        kind if sink.append && !kind.is_pipe() => Err(Errno::EINVAL.into()),
        Kind::Eventfd | Kind::Timerfd | Kind::Signalfd | Kind::Inotify => Err(Errno::EINVAL.into()),
        Kind::Pseudo => Err("its writes are commands, to be kept whole".into()),
        Kind::Tty => Err("a terminal takes bytes, not pages".into()),
        // What is spliced keeps the flags that it has, and only a write makes a
        // packet (`splice_pipe_to_pipe`, fs/splice.c): a short read would take a
        // part of the packet behind.
        _ if sink.is_packet_pipe() => Err("its reader expects packets".into()),
        Kind::Udp | Kind::UnixDatagram | Kind::UnixSeqpacket | Kind::DatagramSocket => {
            Err("pages would be sent as datagrams of any size".into())
        }
        _ if sink.is_direct() => Err("direct I/O wants aligned buffers".into()),
        _ => Ok(()),
    }
}
