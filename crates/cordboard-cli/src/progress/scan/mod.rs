//! Counts the files and the bytes of the operands while they are copied, on a separate
//! thread. The numbers are only for the progress. Errors are ignored, because the copy
//! reports them.

use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::known::Known;
use crate::files::{SocketId, kind};
use crate::sys;

/// The stack of the thread in bytes.
const STACK: usize = 128 << 10;
/// The size of the buffer of a listing in bytes.
const LISTING: usize = 32 << 10;
/// The nice value of the thread, so that the copy takes precedence.
const NICE: i32 = 10;

/// The operands to count.
#[derive(Debug, Clone)]
pub struct Operands {
    /// The operands.
    pub paths: Vec<PathBuf>,
    /// Directories are entered, and symlinks are not followed.
    pub recursive: bool,
    /// The maximum number of bytes of all files together.
    pub most: Option<u64>,
    /// The bytes are counted too, because the bytes written are those of the files.
    pub bytes: bool,
    /// The control socket of this command, which the copy omits.
    pub own_socket: Option<SocketId>,
}

/// A scan. The drop ends it.
#[derive(Debug)]
pub struct Scan {
    shared: Arc<Counts>,
    most: Option<u64>,
    bytes: bool,
    /// Until the thread was told to begin, for which it waits.
    waits: Option<Sender<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    bytes: AtomicU64,
    /// A file was counted whose size is unknown.
    unsized_file: AtomicBool,
    /// A file was not counted that the copy may reach.
    missed: AtomicBool,
    ended: AtomicBool,
    stop: AtomicBool,
}

impl Scan {
    /// Starts the thread, which waits for [`Scan::begin`]. `None`: the address space is
    /// limited, or the thread cannot be created. If the thread cannot have a descriptor table
    /// of its own, it counts nothing.
    ///
    /// Called before a sink is open. The new table has copies of the open descriptors, and the
    /// close of one flushes its file (`filp_flush`, fs/open.c): some servers of FUSE accept no
    /// bytes after that, and an error of a write that has not been reported yet is lost.
    pub fn prepare(operands: Operands) -> Option<Scan> {
        // A small allocation that fails ends the process.
        if sys::addresses_left().is_some() {
            return None;
        }
        let mut scan = Scan {
            shared: Arc::default(),
            most: operands.most,
            bytes: operands.bytes,
            waits: None,
        };
        let counts = Arc::clone(&scan.shared);
        let (left, has_left) = channel();
        let (begin, begins) = channel();
        let body = move || {
            // The copy may need every descriptor number. It closes its files before it
            // reports their end, so the thread must not keep them open.
            let leaves = sys::leave_descriptors();
            counts.missed.store(!leaves, Ordering::Relaxed);
            let _ = left.send(());
            if leaves && begins.recv().is_ok() {
                sys::be_nice(NICE);
                Walk::new(&counts, operands.own_socket).run(&operands);
            }
        };
        // Only the main thread handles signals.
        let started = sys::without_signals(|| {
            let thread = std::thread::Builder::new().name("cordboard-scan".to_owned());
            thread.stack_size(STACK).spawn(body)
        });
        started.ok()?;
        has_left.recv().ok()?;
        scan.waits = Some(begin);
        Some(scan)
    }

    /// Lets the thread begin.
    pub fn begin(&mut self) {
        if let Some(begin) = self.waits.take() {
            let _ = begin.send(());
        }
    }

    /// Returns the number of files. `None`: no file was counted yet.
    pub fn files(&self) -> Option<Known> {
        // In this order: the end is stored after the last number.
        let is_all = self.is_over() && !self.shared.missed.load(Ordering::Relaxed);
        let count = self.shared.files.load(Ordering::Relaxed);
        (count > 0).then_some(Known { count, is_all })
    }

    /// Returns the number of bytes, at least those that the copy reads: holes and each hard
    /// link count. `None`: no byte was counted yet, or the bytes written are other ones.
    pub fn bytes(&self) -> Option<Known> {
        let is_all = self.files()?.is_all && !self.shared.unsized_file.load(Ordering::Relaxed);
        let count = self.shared.bytes.load(Ordering::Relaxed);
        let known = match self.most.filter(|most| *most <= count) {
            Some(most) => Known::all(most),
            None => Known { count, is_all },
        };
        (self.bytes && count > 0).then_some(known)
    }

    fn is_over(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // No join: the thread may wait for a file server that does not answer.
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// The walk of the thread. It has one open descriptor at a time.
struct Walk<'a> {
    counts: &'a Counts,
    /// The present directory.
    path: PathBuf,
    /// The subdirectories to enter, of each directory above and of this one.
    levels: Vec<Vec<CString>>,
    buffer: Vec<MaybeUninit<u8>>,
    own_socket: Option<SocketId>,
}

impl<'a> Walk<'a> {
    fn new(counts: &'a Counts, own_socket: Option<SocketId>) -> Walk<'a> {
        Walk {
            counts,
            path: PathBuf::new(),
            levels: Vec::new(),
            buffer: vec![MaybeUninit::uninit(); LISTING],
            own_socket,
        }
    }

    fn run(&mut self, operands: &Operands) {
        for path in &operands.paths {
            if self.is_stopped() {
                return;
            }
            let look = match operands.recursive {
                true => rustix::fs::lstat,
                false => rustix::fs::stat,
            };
            match retry(|| look(path)) {
                Ok(stat) if operands.recursive && kind(&stat) == FileType::Directory => {
                    self.tree(path);
                }
                Ok(stat) => self.file(&stat),
                Err(_) => self.add(0),
            }
        }
        if !self.is_stopped() {
            self.counts.ended.store(true, Ordering::Release);
        }
    }

    fn is_stopped(&self) -> bool {
        self.counts.stop.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        self.counts.files.fetch_add(1, Ordering::Relaxed);
        let sum = &self.counts.bytes;
        // Only this thread stores it.
        sum.store(
            sum.load(Ordering::Relaxed).saturating_add(bytes),
            Ordering::Relaxed,
        );
    }

    fn file(&self, stat: &Stat) {
        match kind(stat) {
            FileType::RegularFile => self.add(u64::try_from(stat.st_size).unwrap_or(0)),
            FileType::BlockDevice | FileType::CharacterDevice | FileType::Fifo => {
                self.counts.unsized_file.store(true, Ordering::Relaxed);
                self.add(0);
            }
            // A symlink, or a file that the copy refuses.
            _ => self.add(0),
        }
    }

    /// Counts the files below an operand.
    fn tree(&mut self, operand: &Path) {
        self.path = operand.to_owned();
        self.list(true);
        while let Some(level) = self.levels.last_mut() {
            if self.counts.stop.load(Ordering::Relaxed) {
                return;
            }
            match level.pop() {
                Some(name) => {
                    self.path.push(OsStr::from_bytes(name.as_bytes()));
                    self.list(false);
                }
                None => self.leave(),
            }
        }
    }

    fn leave(&mut self) {
        self.levels.pop();
        self.path.pop();
    }

    /// Counts the entries of the present directory, and stores its subdirectories.
    fn list(&mut self, follow: bool) {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        flags.set(OFlags::NOFOLLOW, !follow);
        let opened = retry(|| rustix::fs::open(&self.path, flags, Mode::empty()));
        let mut below = Vec::new();
        match opened {
            Ok(directory) => self.entries(&directory, &mut below),
            // The copy does not use the whole path.
            Err(Errno::NAMETOOLONG) => self.counts.missed.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
        self.levels.push(below);
    }

    fn entries(&mut self, directory: &OwnedFd, below: &mut Vec<CString>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut listing = RawDir::new(directory, &mut buffer);
        while let Some(Ok(entry)) = listing.next() {
            if self.is_stopped() {
                break;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = || retry(|| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW));
            match entry.file_type() {
                FileType::Directory => below.push(name.to_owned()),
                FileType::RegularFile | FileType::Socket | FileType::Unknown => match stat() {
                    Ok(stat) if self.own_socket.is_some_and(|own| own.is(&stat)) => {}
                    Ok(stat) if kind(&stat) == FileType::Directory => below.push(name.to_owned()),
                    Ok(stat) if kind(&stat) == FileType::RegularFile => self.file(&stat),
                    Ok(_) | Err(_) => self.add(0),
                },
                // Symlinks, and files that the copy refuses.
                _ => self.add(0),
            }
        }
        self.buffer = buffer;
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::io::retry_on_intr(&mut call)
}

#[cfg(test)]
mod tests;
