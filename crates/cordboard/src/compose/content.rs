//! Reads the content of private channels.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::RecvFlags;

use crate::errno::Errno;
use crate::report::Stranded;
use crate::sys;

/// Returns a buffer of `length` zeros.
///
/// # Errors
///
/// `ENOMEM`.
fn buffer(length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Joins the parts. If there is not enough memory, the parts that do not fit are missing.
fn joined(parts: Vec<Vec<u8>>) -> Vec<u8> {
    let length: usize = parts.iter().map(Vec::len).sum();
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    if all.try_reserve_exact(length - all.len()).is_ok() {
        parts.for_each(|part| all.extend_from_slice(&part));
    }
    all
}

/// Reads `length` bytes, which the pipe contains.
///
/// # Errors
///
/// `ENOMEM`: nothing was read. Any other: that of a page that cannot be read.
pub(crate) fn read_exactly(pipe: BorrowedFd<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let (mut bytes, mut done) = (buffer(length)?, 0);
    while done < length {
        match rustix::io::read(pipe, &mut bytes[done..]) {
            Ok(0) => return Err(Errno::ENODATA),
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// Receives one datagram, which may be empty. Returns `None` if none has arrived.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    let now = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let length = match sys::peek(socket, now).map_err(Errno::from) {
        Err(Errno::EAGAIN) => return Ok(None),
        length => length?,
    };
    let mut bytes = buffer(length)?;
    sys::recv(socket, &mut bytes, now)?;
    Ok(Some(bytes))
}

/// Returns the stranded bytes of a transfer.
pub(crate) fn bytes_of(stranded: Option<Stranded>) -> Vec<Vec<u8>> {
    match stranded {
        None => Vec::new(),
        Some(Stranded::Buffer(bytes)) => vec![bytes],
        Some(Stranded::Datagrams(all)) => all,
        Some(Stranded::Pipe(pipe)) => content(&pipe, false),
    }
}

/// Returns the number of bytes in these parts.
pub(crate) fn length_of(parts: &[Vec<u8>]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Returns these parts as stranded bytes. `messages`: each part is a datagram.
pub(crate) fn stranded(parts: Vec<Vec<u8>>, messages: bool) -> Stranded {
    match messages {
        true => Stranded::Datagrams(parts),
        false => Stranded::Buffer(joined(parts)),
    }
}

/// Reads the content of a channel. Its write end is closed, or its read end is
/// non-blocking.
pub(crate) fn content(reader: &OwnedFd, messages: bool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if messages && let Some(datagrams) = datagrams(reader.as_fd()) {
        return datagrams;
    }
    let mut bytes = vec![0; 64 << 10];
    loop {
        match rustix::io::read(reader, &mut bytes) {
            Ok(0) => return all,
            Ok(n) => all.push(bytes[..n].to_vec()),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return all,
        }
    }
}

/// Receives all datagrams. Returns `None` for a pipe.
fn datagrams(reader: BorrowedFd<'_>) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    loop {
        let now = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match sys::peek(reader, now).map_err(Errno::from) {
            Err(Errno::ENOTSOCK) => return None,
            // The end, unless more bytes are queued (`unix_inq_len`, net/unix/af_unix.c).
            Ok(0) if rustix::io::ioctl_fionread(reader).unwrap_or(0) == 0 => return Some(all),
            Err(_) => return Some(all),
            Ok(length) => {
                let Ok(mut bytes) = buffer(length) else {
                    return Some(all);
                };
                if sys::recv(reader, &mut bytes, now).is_err() {
                    return Some(all);
                }
                // An empty datagram has no bytes to hand back.
                if length > 0 {
                    all.push(bytes);
                }
            }
        }
    }
}
