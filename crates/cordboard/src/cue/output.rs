//! Records that wait to be sent.

use std::os::fd::BorrowedFd;

use rustix::net::{SendFlags, Shutdown, shutdown};

use super::protocol::Record;
use crate::errno::Errno;
use crate::sys;

/// The number of bytes of waiting records from which no further command is carried out.
const ENOUGH: usize = 1024;

/// The records of one control descriptor that its socket has not accepted yet.
///
/// Each command has at most one answer, and each transfer two records. No command is
/// carried out while [`Output::is_full`], so the memory is bounded.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// No process can read the records any more.
    is_closed: bool,
    /// The kernel had no memory at the last attempt. The socket counts as writable.
    has_no_memory: bool,
    /// Reports of progress that were left out.
    left_out: u32,
}

impl Output {
    /// Returns whether no further command may be carried out.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() - self.sent >= ENOUGH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether no process can read the records any more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether no event follows once records can be sent.
    pub(super) fn has_no_memory(&self) -> bool {
        self.has_no_memory
    }

    pub(super) fn put(&mut self, record: &Record) {
        if !self.is_closed {
            record.encode(&mut self.bytes);
        }
    }

    /// Appends a report of progress, or leaves it out if records wait to be read.
    pub(super) fn put_progress(&mut self, record: impl FnOnce(u32) -> Record) {
        if self.is_empty() {
            let left_out = self.take_left_out();
            self.put(&record(left_out));
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Returns the number of reports that were left out, and resets it.
    pub(super) fn take_left_out(&mut self) -> u32 {
        std::mem::take(&mut self.left_out)
    }

    /// Sends as many bytes as the socket accepts.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) {
        self.has_no_memory = false;
        while self.sent < self.bytes.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sys::send(socket, &self.bytes[self.sent..], flags).map_err(Errno::from) {
                Ok(sent) => self.sent += sent,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                // `sock_alloc_send_pskb`, net/core/sock.c.
                Err(Errno::ENOBUFS) => {
                    self.has_no_memory = true;
                    return;
                }
                // No process reads the other end: `unix_stream_sendmsg`, net/unix/af_unix.c.
                Err(Errno::EPIPE | Errno::ECONNRESET) => return self.close(),
                // A filter refuses the calls. The peer would wait for records that were lost.
                Err(_) => {
                    let _ = shutdown(socket, Shutdown::Both);
                    return self.close();
                }
            }
        }
        (self.bytes, self.sent) = (Vec::new(), 0);
    }

    /// Drops all records, and all later ones.
    pub(super) fn close(&mut self) {
        (self.bytes, self.sent) = (Vec::new(), 0);
        self.is_closed = true;
    }
}
