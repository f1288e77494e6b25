//! Loops from a connected socket, descriptor 3, to another one, descriptor 4;
//! and the processes at both ends, whose socket is descriptor 3. The descriptor of the
//! source can also be a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe};

use super::sinks::print_content;
use crate::harness::digest::{Content, Digest, digest_of};
use crate::harness::files::Noise;
use crate::harness::sys::{FIRST_INHERITED, inherited};

/// The size of the block that the source sends repeatedly.
const PIECE: usize = 256 << 10;

fn socket(index: i32) -> Result<TcpStream> {
    Ok(TcpStream::from(inherited(FIRST_INHERITED + index)?))
}

/// `read(2)` and `write(2)`.
pub fn read_write(block: usize) -> Result<()> {
    let (mut from, mut to) = (socket(0)?, socket(1)?);
    let mut buffer = vec![0; block];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// Through a pipe of `block` bytes.
pub fn splice(block: usize) -> Result<()> {
    let (from, to) = (socket(0)?, socket(1)?);
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    let flags = SpliceFlags::MOVE;
    loop {
        let mut inside = rustix::pipe::splice(&from, None, &put, None, block, flags)?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            let moved = rustix::pipe::splice(&take, None, &to, None, inside, flags)?;
            ensure!(moved > 0, "the pipe is empty too early");
            inside -= moved;
        }
    }
}

fn piece() -> Vec<u8> {
    let mut piece = vec![0; PIECE];
    Noise::new(1).fill(&mut piece);
    // Different from the size of pages and segments.
    piece.truncate(PIECE - 96);
    piece
}

/// Sends this many bytes and closes the socket or pipe.
pub fn source(bytes: usize) -> Result<()> {
    let mut to = File::from(inherited(FIRST_INHERITED)?);
    let piece = piece();
    let mut left = bytes;
    while left > 0 {
        let now = &piece[..piece.len().min(left)];
        to.write_all(now)?;
        left -= now.len();
    }
    if let Err(Errno::NOTSOCK) = shutdown(&to, Shutdown::Write) {
        return Ok(());
    }
    // Waits until the relay has closed its socket, which must not get a reset.
    let _ = to.read(&mut [0]);
    Ok(())
}

/// The length and the digest of the bytes that [`source`] sends.
pub fn sent(bytes: usize) -> Content {
    let piece = piece();
    let mut digest = Digest::default();
    let mut left = bytes;
    while left > 0 {
        let now = &piece[..piece.len().min(left)];
        digest.update(now);
        left -= now.len();
    }
    digest.finish()
}

/// The length and the digest of zeros.
pub fn zeros(bytes: u64) -> Content {
    let piece = vec![0; PIECE];
    let mut digest = Digest::default();
    let mut left = bytes;
    while left > 0 {
        let now = left.min(PIECE as u64);
        digest.update(&piece[..now as usize]);
        left -= now;
    }
    digest.finish()
}

/// Receives everything: `count` makes the kernel discard it, `digest` reads it.
pub fn sink(how: &str) -> Result<()> {
    let from = socket(0)?;
    if how == "digest" {
        print_content(digest_of(&from)?);
        return Ok(());
    }
    let mut room = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match recv(&from, &mut room[..], RecvFlags::TRUNC)?.1 {
            0 => break,
            n => bytes += n as u64,
        }
    }
    println!("{bytes}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::sent;

    #[test]
    fn the_source_sends_the_requested_length() {
        assert_eq!(sent(1_000_000).bytes, 1_000_000);
        assert_ne!(sent(1_000_000).digest, sent(1_000_032).digest);
    }
}
