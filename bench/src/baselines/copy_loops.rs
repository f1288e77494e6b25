//! Loops from a file to a file.

use std::fs::{self, File};
use std::io::Write;

use anyhow::{Result, bail, ensure};
use rustix::fs::{Advice, copy_file_range, fadvise, ioctl_ficlone, sendfile};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe};

const MOST: usize = 1 << 30;
const READ_WRITE_BLOCK: usize = 128 << 10;
const SPLICE_BLOCK: usize = 512 << 10;

/// Copies one file by the named method.
pub fn file(method: &str, from: &str, to: &str, block: Option<usize>) -> Result<()> {
    let source = File::open(from)?;
    fadvise(&source, 0, None, Advice::Sequential)?;
    let sink = File::create(to)?;
    copy(method, &source, &sink, block)
}

/// Copies every file of a directory into a new one.
pub fn all(method: &str, from: &str, to: &str) -> Result<()> {
    fs::create_dir(to)?;
    let from_directory = File::open(from)?;
    let to_directory = File::open(to)?;
    use rustix::fs::{Mode, OFlags, openat};
    for entry in rustix::fs::Dir::read_from(&from_directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let source = openat(
            &from_directory,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let sink = openat(&to_directory, name, flags, Mode::from_raw_mode(0o644))?;
        copy(method, &source.into(), &sink.into(), None)?;
    }
    Ok(())
}

fn copy(method: &str, source: &File, sink: &File, block: Option<usize>) -> Result<()> {
    match method {
        "read-write" => read_write(source, sink, block.unwrap_or(READ_WRITE_BLOCK)),
        "copy_file_range" => {
            while copy_file_range(source, None, sink, None, block.unwrap_or(MOST))? > 0 {}
            Ok(())
        }
        "sendfile" => {
            while sendfile(sink, source, None, block.unwrap_or(MOST))? > 0 {}
            Ok(())
        }
        "splice" => splice(source, sink, block.unwrap_or(SPLICE_BLOCK)),
        "clone" => Ok(ioctl_ficlone(sink, source)?),
        _ => bail!("unknown method {method}"),
    }
}

fn read_write(source: &File, mut sink: &File, block: usize) -> Result<()> {
    let mut buffer = vec![0; block];
    loop {
        match rustix::io::read(source, &mut buffer)? {
            0 => return Ok(()),
            n => sink.write_all(&buffer[..n])?,
        }
    }
}

fn splice(source: &File, sink: &File, block: usize) -> Result<()> {
    let (take, put) = pipe()?;
    fcntl_setpipe_size(&put, block)?;
    let none = SpliceFlags::empty();
    loop {
        let mut inside = rustix::pipe::splice(source, None, &put, None, block, none)?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            let moved = rustix::pipe::splice(&take, None, sink, None, inside, none)?;
            ensure!(moved > 0, "the private pipe is empty too early");
            inside -= moved;
        }
    }
}
