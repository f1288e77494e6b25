//! Bytes that a transfer has read and its sink has not accepted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};

use crate::report::Stranded;
use crate::sys::beyond;

/// Files and pipes whose contents the sink gets before anything else, in order.
pub(super) type Rest = VecDeque<OwnedFd>;

/// Prepends stranded bytes. Bytes for which no file is available are lost.
pub(super) fn keep(rest: &mut Rest, stranded: Option<Stranded>) {
    match stranded {
        Some(Stranded::Pipe(pipe)) => rest.push_front(pipe),
        Some(Stranded::Buffer(bytes)) => file(&bytes).into_iter().for_each(|f| rest.push_front(f)),
        Some(Stranded::Datagrams(all)) => {
            // A file each: a transfer sends a short file as one datagram.
            let files = all.iter().rev().filter_map(|bytes| file(bytes));
            files.for_each(|file| rest.push_front(file));
        }
        None => {}
    }
}

/// Returns a file in memory that contains these bytes.
fn file(bytes: &[u8]) -> Option<OwnedFd> {
    let file = beyond(memfd_create("cordboard", MemfdFlags::CLOEXEC).ok()?).ok()?;
    let mut left = bytes;
    while !left.is_empty() {
        let n = rustix::io::write(&file, left).ok()?;
        left = &left[n..];
    }
    seek(&file, SeekFrom::Start(0)).ok()?;
    Some(file)
}
