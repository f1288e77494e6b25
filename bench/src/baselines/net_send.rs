//! Loops from a file to a connected socket, descriptor 3: the ways A, B and C of the post of
//! 2006, and `sendfile(2)`.

use std::fs::File;
use std::io::Write;

use anyhow::{Result, bail, ensure};
use rustix::fs::{Advice, fadvise, sendfile};
use rustix::net::{Shutdown, shutdown};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe};

use crate::harness::mapping::Mapping;
use crate::harness::sys::{FIRST_INHERITED, inherited};

/// Sends the first `bytes` bytes of a file, with blocks of `block` bytes.
pub fn run(way: &str, block: usize, source: &str, bytes: u64) -> Result<()> {
    let source = File::open(source)?;
    // A device refuses it.
    let _ = fadvise(&source, 0, None, Advice::Sequential);
    let socket = File::from(inherited(FIRST_INHERITED)?);
    send(way, block, &source, &socket, bytes)?;
    shutdown(&socket, Shutdown::Write)?;
    Ok(())
}

fn send(way: &str, block: usize, source: &File, socket: &File, bytes: u64) -> Result<()> {
    ensure!(block > 0, "the block size is 0");
    match way {
        "read-write" => read_write(block, source, socket, bytes),
        "mmap" => mapped(block, source, socket, bytes),
        "splice" => spliced(block, source, socket, bytes),
        "sendfile" => sent(block, source, socket, bytes),
        _ => bail!("unknown way {way}"),
    }
}

/// The length of the next block. A call that asks for more than the file has would delay the
/// last bytes on kernels up to 6.4.
fn next(block: usize, left: u64) -> usize {
    usize::try_from(left).map_or(block, |left| block.min(left))
}

/// A: `read(2)` into a buffer, `write(2)` from the buffer.
fn read_write(block: usize, source: &File, mut socket: &File, mut left: u64) -> Result<()> {
    let mut buffer = vec![0; block];
    while left > 0 {
        let read = rustix::io::read(source, &mut buffer[..next(block, left)])?;
        ensure!(read > 0, "the source has ended, {left} bytes too early");
        socket.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(())
}

/// B: `mmap(2)` of a section, `write(2)` of the section, `munmap(2)`.
fn mapped(block: usize, source: &File, socket: &File, bytes: u64) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        let length = next(block, bytes - at);
        let section = Mapping::to_read(source, at, length)?;
        let mut done = 0;
        while done < length {
            done += section.write_to(done, socket)?;
        }
        at += length as u64;
    }
    Ok(())
}

/// C: `splice(2)` into a pipe of `block` bytes, and from the pipe.
fn spliced(block: usize, source: &File, socket: &File, mut left: u64) -> Result<()> {
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    while left > 0 {
        let wanted = next(block, left);
        let mut inside = rustix::pipe::splice(source, None, &put, None, wanted, SpliceFlags::MOVE)?;
        ensure!(inside > 0, "the source has ended, {left} bytes too early");
        left -= inside as u64;
        // Without the flag, the end of each block would be a segment of its own.
        let more = match left {
            0 => SpliceFlags::empty(),
            _ => SpliceFlags::MORE,
        };
        while inside > 0 {
            let flags = SpliceFlags::MOVE | more;
            inside -= rustix::pipe::splice(&take, None, socket, None, inside, flags)?;
        }
    }
    Ok(())
}

/// `sendfile(2)`, which the post does not have.
fn sent(block: usize, source: &File, socket: &File, mut left: u64) -> Result<()> {
    while left > 0 {
        let sent = sendfile(socket, source, None, next(block, left))?;
        ensure!(sent > 0, "the source has ended, {left} bytes too early");
        left -= sent as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::harness::digest::digest_of;
    use crate::harness::files;
    use crate::harness::network::loopback;

    #[test]
    fn each_way_sends_the_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let made = files::make(&path, 200_000).unwrap();
        for way in ["read-write", "mmap", "splice", "sendfile"] {
            let (near, far) = loopback().unwrap();
            let reader = std::thread::spawn(move || digest_of(far).unwrap());
            let (source, socket) = (File::open(&path).unwrap(), File::from(OwnedFd::from(near)));
            send(way, 64 << 10, &source, &socket, made.bytes).unwrap();
            drop(socket);
            assert_eq!(reader.join().unwrap(), made, "{way}");
        }
    }
}
