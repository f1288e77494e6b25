//! Datagrams in batches: `recvmmsg(2)` and `sendmmsg(2)`.

use std::cell::RefCell;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::net::SendFlags;

use super::attempt::CallError;
use super::last_errno::last_errno;
use crate::errno::Errno;

/// One received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes of it in the buffer.
    pub length: usize,
    /// It was longer than its slot, and the kernel discarded the rest.
    pub truncated: bool,
    /// The sender's credentials came with it, so it is a message and not the end of the
    /// stream (see `pass_credentials`). True also if the buffer had no room for them:
    /// the end comes without any ancillary data.
    pub credentials: bool,
    /// The length of the datagrams that the kernel has joined into this one, of which
    /// the last may be shorter: `UDP_GRO` (since Linux 5.0) is set.
    pub segment: Option<usize>,
}

/// Options for receiving datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// The call waits for the first datagram.
    pub wait: bool,
    /// Descriptors may be received, which only UNIX sockets pass. Other sockets need no
    /// flag for that, and some refuse it: `packet_recvmsg` (net/packet/af_packet.c),
    /// `pfkey_recvmsg` (net/key/af_key.c), `isotp_recvmsg` and `j1939_sk_recvmsg`
    /// (net/can), `pn_recvmsg` (net/phonet).
    pub descriptors: bool,
}

impl How {
    /// Received descriptors are closed at once. Until then, a child must not inherit
    /// them.
    fn flags(self) -> libc::c_int {
        match self.descriptors {
            true => libc::MSG_CMSG_CLOEXEC,
            false => 0,
        }
    }
}

/// From `linux/socket.h`: a pidfd of the sender, or an errno, if the host has set
/// `SO_PASSPIDFD`.
const SCM_PIDFD: libc::c_int = 4;

/// Room for credentials and timestamps; the kernel omits what does not fit.
type Ancillary = [u64; 32];

/// The headers of a batch, kept between calls.
pub(crate) struct Batch {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    control: Vec<Ancillary>,
}

// SAFETY: the pointers in it are set anew at the start of each call, from
// references that outlive the call; between calls they are never read.
unsafe impl Send for Batch {}

thread_local! {
    /// The last batch this thread recycled.
    static SPARE: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

impl Batch {
    /// Makes a batch of at most `slots` datagrams.
    pub(crate) fn new(slots: usize) -> Batch {
        let spare = SPARE.try_with(|spare| spare.take()).ok().flatten();
        if let Some(spare) = spare.filter(|spare| spare.headers.len() == slots) {
            return spare;
        }
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let header = unsafe { mem::zeroed() };
        let vector = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Batch {
            headers: vec![header; slots],
            vectors: vec![vector; slots],
            control: vec![[0; 32]; slots],
        }
    }

    /// Keeps the batch for this thread's next transfer.
    pub(crate) fn recycle(self) {
        let _ = SPARE.try_with(|spare| spare.replace(Some(self)));
    }

    /// Receives up to a batch of datagrams, each into a slot of `slot` bytes
    /// of `buffer`. Since Linux 2.6.33.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no datagram. `ECONNREFUSED`: the receiver of an earlier
    /// datagram refused it (`udp(7)`). `EINTR`.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        slot: usize,
        at_most: usize,
        how: How,
        out: &mut Vec<Received>,
    ) -> Result<usize, Errno> {
        out.clear();
        let count = (buffer.len() / slot).min(self.headers.len()).min(at_most);
        for (index, part) in buffer.chunks_exact_mut(slot).take(count).enumerate() {
            self.vectors[index] = libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: slot,
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = self.control[index].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Ancillary>() as _;
            header.msg_flags = 0;
            header.msg_name = ptr::null_mut();
            header.msg_namelen = 0;
        }
        let flags = how.flags()
            | if how.wait {
                libc::MSG_WAITFORONE
            } else {
                libc::MSG_DONTWAIT
            };
        // SAFETY: `count` headers point at vectors and buffers that outlive the call.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                flags as _,
                ptr::null_mut(),
            )
        };
        if received < 0 {
            return Err(last_errno());
        }
        for message in &self.headers[..received as usize] {
            out.push(received_with(&message.msg_hdr, message.msg_len as usize));
        }
        Ok(received as usize)
    }

    /// Sends these datagrams in order. Returns how many were sent, and how many bytes of the
    /// last one: the kernel sends none after one that it accepts in part (`__sys_sendmmsg`,
    /// net/socket.c). Since Linux 3.0.
    ///
    /// # Errors
    ///
    /// As the first datagram: `EAGAIN`, `EMSGSIZE`, `ECONNREFUSED`, …
    pub(crate) fn send<'b>(
        &mut self,
        fd: BorrowedFd<'_>,
        datagrams: impl Iterator<Item = &'b [u8]>,
        flags: SendFlags,
    ) -> Result<(usize, usize), Errno> {
        let mut count = 0;
        for (index, datagram) in datagrams.take(self.headers.len()).enumerate() {
            self.vectors[index] = libc::iovec {
                iov_base: datagram.as_ptr().cast_mut().cast(),
                iov_len: datagram.len(),
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
            header.msg_name = ptr::null_mut();
            header.msg_namelen = 0;
            count = index + 1;
        }
        // SAFETY: `count` headers point at vectors and slices that outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                flags.bits() as _,
            )
        };
        if sent < 0 {
            return Err(last_errno());
        }
        let sent = sent as usize;
        let last = sent.checked_sub(1).map(|last| &self.headers[last]);
        Ok((sent, last.map_or(0, |last| last.msg_len as usize)))
    }
}

/// Receives one datagram, if batches are refused.
///
/// # Errors
///
/// As [`Batch::receive`].
pub(crate) fn receive_one(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    how: How,
) -> Result<Received, CallError> {
    let flags = how.flags() | if how.wait { 0 } else { libc::MSG_DONTWAIT };
    let look = how.flags() | libc::MSG_DONTWAIT | libc::MSG_PEEK;
    let received = message(fd, into, flags);
    received.map_err(|errno| CallError::new(errno, || message(fd, &mut [], look)))
}

/// `recvmsg(2)`.
fn message(fd: BorrowedFd<'_>, into: &mut [u8], flags: libc::c_int) -> Result<Received, Errno> {
    let mut control: Ancillary = [0; 32];
    let mut vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Ancillary>() as _;
    // SAFETY: the header points at a vector and buffers that outlive the call.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    if n < 0 {
        return Err(last_errno());
    }
    Ok(received_with(&header, n as usize))
}

/// Parses the header of a received message. Descriptors in it (`SCM_RIGHTS`, and
/// `SCM_PIDFD` since Linux 6.5) are closed, so that a sender cannot fill the descriptor
/// table.
fn received_with(header: &libc::msghdr, length: usize) -> Received {
    let mut received = Received {
        length,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        credentials: header.msg_flags & libc::MSG_CTRUNC != 0,
        segment: None,
    };
    // SAFETY: the kernel filled in msg_control and msg_controllen of this header.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers inside the buffer.
        let part = unsafe { &*next };
        if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_CREDENTIALS {
            received.credentials = true;
        }
        let is_fds = matches!(part.cmsg_type, libc::SCM_RIGHTS | SCM_PIDFD);
        if part.cmsg_level == libc::SOL_SOCKET && is_fds {
            close_rights(part);
        }
        if part.cmsg_level == libc::SOL_UDP && part.cmsg_type == libc::UDP_GRO {
            received.segment = number(part).filter(|size| *size > 0);
        }
        // SAFETY: `next` is a header of this message.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    received
}

/// Returns the number of data bytes of this header.
#[allow(
    clippy::unnecessary_cast,
    reason = "`cmsg_len` is a `socklen_t` in musl, a `size_t` in glibc"
)]
fn data_length(part: &libc::cmsghdr) -> usize {
    // SAFETY: computes an offset only.
    let head = unsafe { libc::CMSG_LEN(0) } as usize;
    (part.cmsg_len as usize).saturating_sub(head)
}

/// Returns the data of this header, if it is one integer.
fn number(part: &libc::cmsghdr) -> Option<usize> {
    if data_length(part) < size_of::<libc::c_int>() {
        return None;
    }
    // SAFETY: the data of this header follows it in the control buffer.
    let data = unsafe { libc::CMSG_DATA(part) }.cast::<libc::c_int>();
    // SAFETY: as long as an integer, as was just found, at any alignment.
    let number = unsafe { data.read_unaligned() };
    usize::try_from(number).ok()
}

fn close_rights(part: &libc::cmsghdr) {
    let count = data_length(part) / size_of::<libc::c_int>();
    // SAFETY: the data of this header follows it in the control buffer.
    let data = unsafe { libc::CMSG_DATA(part) }.cast::<libc::c_int>();
    for index in 0..count {
        // SAFETY: `count` descriptors are there.
        let at = unsafe { data.add(index) };
        // SAFETY: as above, at any alignment.
        let fd = unsafe { at.read_unaligned() };
        if fd >= 0 {
            // SAFETY: the kernel has just installed it, and no other code has it.
            unsafe { libc::close(fd) };
        }
    }
}
