//! The queue of files that hold bytes that do not fit into the pipes.
//!
//! A file is filled from its start to its length, then the next one is filled. It is
//! closed when all its bytes are taken, which frees its space. No byte is overwritten and
//! no hole is punched: pages that `splice(2)` has passed on may still be unread in a pipe
//! or in a socket, and would change.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, unlinkat};
use rustix::pipe::{SpliceFlags, splice};

use super::unwritten::Part;
use crate::compose::{Channel, content, read_exactly};
use crate::errno::Errno;
use crate::sys::{again, beyond, memory_file, pread, pwrite, writeback_error};

/// Bytes of one read or write through user space.
const PIECE: usize = 64 << 10;
/// The number of names that are tried if the file system does not support `O_TMPFILE`.
const TRIES: u32 = 100;

/// Where files are made.
#[derive(Debug)]
pub(super) enum Files {
    Memory,
    Directory(OwnedFd),
}

impl Files {
    /// Opens a directory for the files. It need not be readable.
    ///
    /// # Errors
    ///
    /// That of `open(2)`.
    pub(super) fn at(directory: &std::path::Path) -> Result<Files, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let opened = open(directory, flags, Mode::empty())?;
        Ok(Files::Directory(beyond(opened)?))
    }

    /// Makes a file without a name.
    fn make(&self) -> Result<OwnedFd, Errno> {
        let made = match self {
            Files::Memory => memory_file(c"cordboard")?,
            Files::Directory(directory) => unnamed(directory.as_fd())?,
        };
        beyond(made)
    }
}

/// Creates a file by `O_TMPFILE`. If the file system does not support that, creates a
/// named file and unlinks it. If it cannot be unlinked, it stays, without contents.
fn unnamed(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(directory, c".", flags | OFlags::TMPFILE, mode) {
        Ok(made) => return Ok(made),
        // Not supported by the file system: open(2). EISDIR: before Linux 3.11.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    let own = rustix::process::getpid();
    for number in 0..TRIES {
        let name = format!(".cordboard-{}-{number}", own.as_raw_nonzero());
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match openat(directory, &name, flags, mode) {
            Ok(made) => {
                unlinkat(directory, &name, AtFlags::empty())?;
                return Ok(made);
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EEXIST)
}

/// One file.
#[derive(Debug)]
struct Segment {
    file: OwnedFd,
    filled: u64,
    taken: u64,
}

/// A pipe with pages of a file.
struct Staged {
    pipe: Channel,
    held: usize,
}

/// The queue.
pub(super) struct Store {
    files: Files,
    /// The length of a file in bytes.
    length: u64,
    segments: VecDeque<Segment>,
    /// Bytes that were to go from pipe to pipe and that the second one has not accepted.
    /// They come before the bytes in the files.
    front: Vec<u8>,
    /// Pages of a file, which come before the other bytes in the files. A call that reads them
    /// from the disk, or a file in memory from the swap space, holds the lock of the pipe that it
    /// fills. The next pipe is also used by a thread that does not wait.
    staged: Option<Staged>,
    /// Bytes that a file has not accepted. They come after the bytes in the files.
    refused: Vec<u8>,
    copies_in: bool,
    copies_out: bool,
    /// The writeback of a file has failed, so the bytes in the files may be wrong.
    lost: bool,
    /// Bytes that have passed through the files.
    pub(super) stored: u64,
    /// Why nothing more can be stored.
    pub(super) failed: Option<Errno>,
}

impl Store {
    /// `length`: the length of a file in bytes. `by_splice`: whether `splice(2)` may be
    /// used.
    pub(super) fn new(files: Files, length: u64, by_splice: bool) -> Store {
        Store {
            files,
            length: length.max(1),
            segments: VecDeque::new(),
            front: Vec::new(),
            staged: None,
            refused: Vec::new(),
            copies_in: !by_splice,
            copies_out: !by_splice,
            lost: false,
            stored: 0,
            failed: None,
        }
    }

    /// Checks that files can be created, by creating one.
    ///
    /// # Errors
    ///
    /// That of `memfd_create(2)`, or of `open(2)` in the directory.
    pub(super) fn prepare(&self) -> Result<(), Errno> {
        self.files.make().map(drop)
    }

    pub(super) fn is_empty(&self) -> bool {
        let no_bytes = self.front.is_empty() && self.refused.is_empty();
        no_bytes && self.staged() == 0 && self.segments.is_empty()
    }

    fn staged(&self) -> usize {
        self.staged.as_ref().map_or(0, |staged| staged.held)
    }

    /// Moves up to `most` bytes from the pipe, which holds at least that many, to the end
    /// of the queue. Returns their number; 0 means that the store has failed.
    pub(super) fn fill(&mut self, pipe: BorrowedFd<'_>, most: usize) -> usize {
        if self.failed.is_some() {
            return 0;
        }
        match self.try_fill(pipe, most) {
            Ok(n) => {
                self.stored += n as u64;
                n
            }
            Err(errno) => {
                self.failed = Some(errno);
                0
            }
        }
    }

    fn try_fill(&mut self, pipe: BorrowedFd<'_>, most: usize) -> Result<usize, Errno> {
        let length = self.length;
        if self
            .segments
            .back()
            .is_none_or(|last| last.filled == length)
        {
            let file = self.files.make()?;
            self.segments.push_back(Segment {
                file,
                filled: 0,
                taken: 0,
            });
        }
        let Some(last) = self.segments.back_mut() else {
            return Ok(0);
        };
        let most = most.min(usize::try_from(length - last.filled).unwrap_or(usize::MAX));
        let done = match self.copies_in {
            true => Err(Errno::EINVAL),
            false => {
                let mut at = last.filled;
                let (file, flags) = (&last.file, SpliceFlags::empty());
                let done = again(|| splice(pipe, None, file, Some(&mut at), most, flags));
                done.map_err(Errno::from)
            }
        };
        let done = match done {
            Err(errno) if errno.is_refusal_or_invalid() => {
                // The file system has no `splice_write`, or a filter refuses the call.
                self.copies_in = true;
                let mut bytes = vec![0; most.min(PIECE)];
                let n = match again(|| rustix::io::read(pipe, &mut bytes)) {
                    Ok(n) => n,
                    Err(errno) => {
                        self.drop_empty(0);
                        return Err(errno.into());
                    }
                };
                bytes.truncate(n);
                let kept = write_all(last, &bytes);
                if let Err((written, errno)) = kept {
                    self.refused = bytes.split_off(written);
                    self.failed = Some(errno);
                }
                return Ok(self.drop_empty(n));
            }
            done => done,
        };
        let n = match done {
            Ok(n) => n,
            Err(errno) => {
                self.drop_empty(0);
                return Err(errno);
            }
        };
        last.filled += n as u64;
        Ok(self.drop_empty(n))
    }

    /// Removes the last file if it contains no bytes: `is_empty` requires that no empty
    /// file is in the queue.
    fn drop_empty(&mut self, n: usize) -> usize {
        if self
            .segments
            .back()
            .is_some_and(|last| last.filled == last.taken)
        {
            self.segments.pop_back();
        }
        n
    }

    /// Moves bytes from the front of the queue into the pipe. Returns their number.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the pipe is full. Any other: a page of the file cannot be read, or was not
    /// written to the device.
    pub(super) fn take(&mut self, pipe: BorrowedFd<'_>) -> Result<usize, Errno> {
        if !self.front.is_empty() {
            let n = again(|| rustix::io::write(pipe, &self.front))?;
            self.front.drain(..n);
            return Ok(n);
        }
        if self.staged() > 0 {
            return self.take_staged(pipe);
        }
        let Some(first) = self.segments.front_mut() else {
            let n = again(|| rustix::io::write(pipe, &self.refused))?;
            self.refused.drain(..n);
            return Ok(n);
        };
        let left = usize::try_from(first.filled - first.taken).unwrap_or(usize::MAX);
        let mut done = Err(Errno::EINVAL);
        if !self.copies_out && self.staged.is_none() {
            // Without a descriptor, the pages are copied.
            let pipe = Channel::new(false).ok();
            self.staged = pipe.map(|pipe| Staged { pipe, held: 0 });
            self.copies_out = self.staged.is_none();
        }
        let into = (self.staged.as_ref()).map_or(pipe, |staged| staged.pipe.writer());
        if !self.copies_out {
            let mut at = first.taken;
            let (file, flags) = (&first.file, SpliceFlags::NONBLOCK);
            let spliced = again(|| splice(file, Some(&mut at), into, None, left, flags));
            done = spliced.map_err(Errno::from);
        }
        // A page whose writeback has failed is read back as zeros once it has left the cache.
        let on_disk = matches!(self.files, Files::Directory(_));
        let mut check = |file: &OwnedFd| match on_disk {
            true => writeback_error(file.as_fd()).inspect_err(|_| self.lost = true),
            false => Ok(()),
        };
        let n = match done {
            Err(errno) if errno.is_refusal_or_invalid() => {
                self.copies_out = true;
                let mut bytes = vec![0; left.min(PIECE)];
                let n = again(|| pread(first.file.as_fd(), &mut bytes, first.taken))?;
                check(&first.file)?;
                again(|| rustix::io::write(pipe, &bytes[..n]))?
            }
            done => {
                let n = done?;
                check(&first.file)?;
                n
            }
        };
        if n == 0 {
            // The file is shorter than the bytes that were written to it.
            return Err(Errno::EIO);
        }
        first.taken += n as u64;
        if first.taken == first.filled {
            self.segments.pop_front();
        }
        match &mut self.staged {
            Some(staged) if !self.copies_out => {
                staged.held = n;
                self.take_staged(pipe)
            }
            _ => Ok(n),
        }
    }

    /// Moves staged pages into the pipe.
    fn take_staged(&mut self, pipe: BorrowedFd<'_>) -> Result<usize, Errno> {
        let Some(staged) = &mut self.staged else {
            return Ok(0);
        };
        let (from, flags) = (staged.pipe.reader(), SpliceFlags::NONBLOCK);
        match again(|| splice(from, None, pipe, None, staged.held, flags)).map_err(Errno::from) {
            Ok(n) => {
                staged.held -= n;
                Ok(n)
            }
            // A filter refuses the call for two pipes.
            Err(errno) if errno.is_refusal_or_invalid() => {
                self.copies_out = true;
                self.front = read_exactly(from, staged.held)?;
                staged.held = 0;
                self.take(pipe)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Reads up to `most` bytes from the pipe, which holds at least that many, into memory,
    /// if the queue is empty. [`Store::take`] writes them. They do not count as stored.
    /// Returns their number.
    ///
    /// # Errors
    ///
    /// That of `read(2)`.
    pub(super) fn copy(&mut self, from: BorrowedFd<'_>, most: usize) -> Result<usize, Errno> {
        debug_assert!(self.is_empty());
        self.front.resize(most.min(PIECE), 0);
        let read = again(|| rustix::io::read(from, &mut self.front));
        self.front.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read?)
    }

    /// Returns the bytes that are left.
    pub(super) fn into_parts(self) -> Vec<Part> {
        let file = |segment: Segment| Part::File {
            at: segment.taken,
            end: segment.filled,
            file: segment.file,
        };
        let mut parts = vec![Part::Bytes(self.front)];
        if self.lost {
            return parts;
        }
        if let Some(staged) = self.staged {
            let reader = staged.pipe.close_writer();
            parts.extend(content(&reader, false).into_iter().map(Part::Bytes));
        }
        parts.extend(self.segments.into_iter().map(file));
        parts.push(Part::Bytes(self.refused));
        parts
    }
}

/// Writes all bytes to the end of the file. `Err`: how many were written, and the errno.
fn write_all(segment: &mut Segment, bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let mut done = 0;
    while done < bytes.len() {
        let to = segment.file.as_fd();
        match again(|| pwrite(to, &bytes[done..], segment.filled)) {
            Ok(0) => return Err((done, Errno::ENOSPC)),
            Ok(n) => {
                done += n;
                segment.filled += n as u64;
            }
            Err(errno) => return Err((done, errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
