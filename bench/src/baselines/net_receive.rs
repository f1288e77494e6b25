//! Loops from a connected socket, descriptor 3, to a file: the ways 1, 2 and 3 of the post of
//! 2006, `splice(2)`, and direct I/O. Each prints the number of bytes.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::sync_channel;

use anyhow::{Result, anyhow, bail, ensure};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe};

use crate::harness::mapping::{Mapping, vmsplice};
use crate::harness::ring::{ALIGNMENT, Block};
use crate::harness::sys::{FIRST_INHERITED, inherited};

/// The blocks of the direct way: one is filled while another one is written.
const DEPTH: usize = 4;

/// Receives everything into a file, with blocks of `block` bytes.
pub fn run(way: &str, block: usize, sink: &str) -> Result<()> {
    let socket = TcpStream::from(inherited(FIRST_INHERITED)?);
    let mut options = OpenOptions::new();
    // Way 2 maps it for reading and writing.
    options.read(true).write(true).create(true).truncate(true);
    if way == "direct" {
        options.custom_flags(libc::O_DIRECT);
    }
    println!("{}", receive(way, block, &socket, &options.open(sink)?)?);
    Ok(())
}

fn receive(way: &str, block: usize, socket: &TcpStream, sink: &File) -> Result<u64> {
    ensure!(
        block > 0 && block.is_multiple_of(ALIGNMENT),
        "the block size must be a multiple of {ALIGNMENT} bytes"
    );
    match way {
        "read-write" => read_write(block, socket, sink),
        "mmap" => mapped(block, socket, sink),
        "vmsplice" => vmspliced(block, socket, sink),
        "splice" => spliced(block, socket, sink),
        "direct" => direct(block, socket, sink),
        _ => bail!("unknown way {way}"),
    }
}

/// 1: `read(2)` into a buffer, `write(2)` from the buffer.
fn read_write(block: usize, mut socket: &TcpStream, mut sink: &File) -> Result<u64> {
    let mut buffer = vec![0; block];
    let mut bytes = 0;
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(bytes),
            n => {
                sink.write_all(&buffer[..n])?;
                bytes += n as u64;
            }
        }
    }
}

/// 2: `ftruncate(2)` lengthens the file by an extent, `mmap(2)`, `read(2)` into the extent,
/// `munmap(2)`.
fn mapped(block: usize, socket: &TcpStream, sink: &File) -> Result<u64> {
    let mut bytes = 0;
    loop {
        sink.set_len(bytes + block as u64)?;
        let mut extent = Mapping::to_write(sink, bytes, block)?;
        let mut filled = 0;
        while filled < block {
            match extent.read_from(filled, socket)? {
                0 => {
                    bytes += filled as u64;
                    sink.set_len(bytes)?;
                    return Ok(bytes);
                }
                n => filled += n,
            }
        }
        bytes += block as u64;
    }
}

/// 3: `read(2)` into one of two buffers, `vmsplice(2)` of the buffer into a pipe, `splice(2)`
/// from the pipe. The pipe has room for one buffer, so the other one has left it.
fn vmspliced(block: usize, mut socket: &TcpStream, sink: &File) -> Result<u64> {
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    let mut buffers = [Block::new(block), Block::new(block)];
    let mut bytes = 0;
    for turn in 0.. {
        let buffer = buffers[turn % 2].bytes();
        let read = socket.read(buffer)?;
        if read == 0 {
            break;
        }
        let mut put_in = 0;
        while put_in < read {
            let mut inside = vmsplice(&put, &buffer[put_in..read])?;
            put_in += inside;
            while inside > 0 {
                inside -= rustix::pipe::splice(&take, None, sink, None, inside, SpliceFlags::MOVE)?;
            }
        }
        bytes += read as u64;
    }
    Ok(bytes)
}

/// `splice(2)` into a pipe of `block` bytes, and from the pipe. In 2006 sockets had no
/// `splice(2)` as a source.
fn spliced(block: usize, socket: &TcpStream, sink: &File) -> Result<u64> {
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    let flags = SpliceFlags::MOVE;
    let mut bytes = 0;
    loop {
        let mut inside = rustix::pipe::splice(socket, None, &put, None, block, flags)?;
        if inside == 0 {
            return Ok(bytes);
        }
        bytes += inside as u64;
        while inside > 0 {
            inside -= rustix::pipe::splice(&take, None, sink, None, inside, flags)?;
        }
    }
}

/// `read(2)` into aligned blocks on one thread, `write(2)` past the page cache on another one.
fn direct(block: usize, mut socket: &TcpStream, mut sink: &File) -> Result<u64> {
    let (full, to_write) = sync_channel::<(Block, usize)>(DEPTH);
    let (empty, to_fill) = sync_channel::<Block>(DEPTH);
    for _ in 0..DEPTH {
        empty.send(Block::new(block))?;
    }
    let bytes = std::thread::scope(|scope| {
        let writer = scope.spawn(move || -> Result<()> {
            for (mut buffer, filled) in to_write {
                // The last block, too, has whole sectors.
                let length = filled.next_multiple_of(ALIGNMENT);
                sink.write_all(&buffer.bytes()[..length])?;
                let _ = empty.send(buffer);
            }
            Ok(())
        });
        let mut bytes = 0;
        // An error of the writer ends both channels.
        for mut buffer in to_fill {
            let mut filled = 0;
            while filled < block {
                match socket.read(&mut buffer.bytes()[filled..])? {
                    0 => break,
                    n => filled += n,
                }
            }
            bytes += filled as u64;
            if full.send((buffer, filled)).is_err() || filled < block {
                break;
            }
        }
        drop(full);
        let wrote = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
        wrote.map(|()| bytes)
    })?;
    sink.set_len(bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::harness::digest::digest_of;
    use crate::harness::files;
    use crate::harness::network::loopback;

    #[test]
    fn each_way_receives_every_byte_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        // The last block is not full, and not aligned.
        let made = files::make(&path, (3 << 16) + 1234).unwrap();
        for way in ["read-write", "mmap", "vmsplice", "splice", "direct"] {
            let (mut near, far) = loopback().unwrap();
            let content = std::fs::read(&path).unwrap();
            let writer = std::thread::spawn(move || near.write_all(&content).unwrap());
            let sink = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
            let bytes = receive(way, 64 << 10, &far, sink.as_file()).unwrap();
            writer.join().unwrap();
            assert_eq!(bytes, made.bytes, "{way}");
            let written = digest_of(sink.reopen().unwrap()).unwrap();
            assert_eq!(written, made, "{way}");
        }
    }
}
