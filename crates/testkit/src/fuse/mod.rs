//! A file system in user space whose root is one file, or a directory with it. It speaks
//! the kernel's protocol itself (linux/fuse.h).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tempfile::TempDir;

mod other;
mod permissions;

pub use permissions::Permissions;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKNOD: u32 = 8;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const POLL: u32 = 40;
const LSEEK: u32 = 46;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_KEEP_CACHE: u32 = 2;
const FOPEN_NONSEEKABLE: u32 = 4;
const FOPEN_STREAM: u32 = 16;
const WRITEBACK_CACHE: u32 = 1 << 16;
const INIT_EXT: u32 = 1 << 30;
/// A bit of `fuse_setattr_in::valid`: the size is set.
const SIZE: u32 = 1 << 3;
/// A bit of `fuse_init_out::flags2`.
const DIRECT_IO_ALLOW_MMAP: u32 = 1 << 4;

/// The properties of the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Served<'a> {
    /// Its content. Bytes written to it are dropped.
    pub holds: &'a [u8],
    /// The file that it shows, in place of `holds` and `claims`: writes and changes of
    /// size go to it. The kernel may cache its attributes for an hour.
    pub shows: Option<&'a File>,
    /// The size that it reports.
    pub claims: u64,
    /// The root is a directory that contains the file: then the kernel trusts the size
    /// that was reported at the lookup ([`Served::writeback`]).
    pub inside: bool,
    /// It does not exist until it is created.
    pub absent: bool,
    /// Reads and writes bypass the page cache (`FOPEN_DIRECT_IO`).
    pub direct: bool,
    /// It can be mapped although reads and writes bypass the page cache
    /// (`FUSE_DIRECT_IO_ALLOW_MMAP`, since Linux 6.6).
    pub mapped: bool,
    /// It has no positions: `lseek(2)`, `pread(2)` and `pwrite(2)` are `ESPIPE`.
    pub stream: bool,
    /// Each byte is read once, over all opens: a read begins where the last one ended
    /// (`FOPEN_STREAM`).
    pub once: bool,
    /// An open keeps what the kernel has cached (`FOPEN_KEEP_CACHE`). Without it, an open
    /// writes back what [`Served::writeback`] has cached.
    pub kept: bool,
    /// It has no blocks. `SEEK_DATA` and `SEEK_HOLE` find data in the bytes that
    /// [`Served::gets`] had at the last successful `fsync(2)`, and a hole in all others.
    pub sparse: bool,
    /// The kernel caches writes, and trusts its own sizes (`FUSE_WRITEBACK_CACHE`).
    pub writeback: bool,
    /// The most bytes that one read or write moves; 0: no limit.
    pub short: u32,
    /// The errno of each `close(2)`, as of a server that has run out of space; 0: none.
    pub close: i32,
    /// Only the first close after a write fails: the server reports an error once.
    pub once_closed: bool,
    /// The errno of each `open(2)`.
    pub open: i32,
    /// The errno of each `statfs(2)`.
    pub statfs: i32,
    /// The errno of every other `fsync(2)`, from the first on.
    pub sync: i32,
    /// Each `fsync(2)` fails, instead of every other one.
    pub never_syncs: bool,
    /// The errno of every other change of an attribute, such as the size.
    pub change: i32,
    /// Writes and changes of attributes take half a second, and fail with `EINTR` if
    /// the kernel interrupts them for a signal.
    pub slow: bool,
    /// Reads and writes of any byte at or after the offset fail with this errno each
    /// time; 0: none.
    pub fails: (u64, i32),
    /// The content of another file in the directory ([`Served::inside`]), `other`, which
    /// can be read and written.
    pub other: Option<&'a Mutex<Vec<u8>>>,
    /// Its mode and its access control list.
    pub permissions: Option<&'a Mutex<Permissions>>,
    /// Receives the bytes that are written.
    pub gets: Option<&'a Mutex<Vec<u8>>>,
    /// Counts the reads, writes and `fsync(2)` that have failed.
    pub failed: Option<&'a AtomicU32>,
    /// Counts the requests of `poll(2)`. The first is answered with `ENOSYS`, and the
    /// kernel then sends no more.
    pub polls: Option<&'a AtomicU32>,
    /// While this is true, reads and writes are not answered.
    pub silent: Option<&'a AtomicBool>,
    /// While this is true, queries of the attributes (`fstat(2)`) are not answered.
    pub mute: Option<&'a AtomicBool>,
}

impl Served<'_> {
    /// A file of a server that has no space, and reports that once: at the first close after
    /// a write.
    pub fn full() -> Self {
        Served {
            close: libc::ENOSPC,
            once_closed: true,
            ..Served::default()
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

fn double(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |b| u64::from_ne_bytes(*b))
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

const ROOT: u64 = 1;
const FILE: u32 = 0o100_666;
const DIRECTORY: u32 = 0o40_777;

/// The file in the directory, and [`Served::other`].
const INSIDE: u64 = ROOT + 1;
const OTHER: u64 = ROOT + 2;

/// `struct fuse_entry_out` of this file, not to be cached.
fn entry(node: u64, size: u64) -> Vec<u8> {
    let mut out = words(&[0; 10]);
    out[..8].copy_from_slice(&node.to_ne_bytes());
    out.extend(&attributes(size, FILE)[16..]);
    out
}

/// `struct fuse_attr_out`, not to be cached.
fn attributes(size: u64, mode: u32) -> Vec<u8> {
    let mut out = words(&[0, 0, 0, 0]);
    for number in [1, size, size.div_ceil(512), 0, 0, 0] {
        out.extend(number.to_ne_bytes());
    }
    // Three fractions of times, mode, links, owner, group, device, block, flags.
    out.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    out
}

/// Sets the number of blocks behind the inode number and the size at `at`.
fn without_blocks(mut out: Vec<u8>, at: usize) -> Vec<u8> {
    out[at + 2 * 8..][..8].fill(0);
    out
}

/// Answers `struct fuse_lseek_in` for a file whose first `data` bytes are data, by
/// `struct fuse_lseek_out`.
fn sought(body: &[u8], data: u64) -> Result<Vec<u8>, i32> {
    let (offset, is_data) = (double(body, 8), word(body, 16) == libc::SEEK_DATA as u32);
    match offset < data {
        true if is_data => Ok(offset.to_ne_bytes().to_vec()),
        true => Ok(data.to_ne_bytes().to_vec()),
        false if is_data => Err(-libc::ENXIO),
        false => Ok(offset.to_ne_bytes().to_vec()),
    }
}

/// `struct fuse_attr_out` of [`Served::shows`], to be cached for an hour.
fn attributes_of(shown: &File) -> Vec<u8> {
    let stat = rustix::fs::fstat(shown).expect("the file is open");
    let mut out = attributes(stat.st_size as u64, FILE);
    out[..8].copy_from_slice(&3600u64.to_ne_bytes());
    // After the inode number, the size, the blocks and the access time.
    out[16 + 4 * 8..][..8].copy_from_slice(&(stat.st_mtime as u64).to_ne_bytes());
    out
}

fn read_of(shown: &File, at: u64, most: u32) -> Vec<u8> {
    let mut bytes = vec![0; most as usize];
    let read = shown.read_at(&mut bytes, at).expect("the file can be read");
    bytes.truncate(read);
    bytes
}

/// Whether the kernel interrupts, within half a second, the call that is being served.
fn is_interrupted(mut device: &File) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let half = Timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
    };
    let mut request = vec![0; 2 << 20];
    while poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&half)).is_ok_and(|n| n > 0) {
        match device.read(&mut request) {
            Ok(40..) if word(&request, 4) == INTERRUPT => return true,
            _ => {}
        }
    }
    false
}

/// Writes bytes into the content at an offset.
fn keep(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (from, to) = (at as usize, at as usize + bytes.len());
    file.resize(file.len().max(to), 0);
    file[from..to].copy_from_slice(bytes);
}

/// Answers until the file system is unmounted.
fn serve(mut device: &File, served: Served<'_>) {
    let data = served.holds;
    let mut request = vec![0; 2 << 20];
    let most = if served.short == 0 {
        u32::MAX
    } else {
        served.short
    };
    let moved = |body: &[u8]| word(body, 16).min(most);
    let permissions = || served.permissions.map(|shared| shared.lock().unwrap());
    let shown_or_claimed = || {
        let mode = permissions().map_or(FILE, |known| known.mode);
        let claimed = || match served.sparse {
            true => without_blocks(attributes(served.claims, mode), 16),
            false => attributes(served.claims, mode),
        };
        served.shows.map_or_else(claimed, attributes_of)
    };
    let found = || match served.sparse {
        true => without_blocks(entry(INSIDE, served.claims), 40),
        false => entry(INSIDE, served.claims),
    };
    let (mut syncs, mut changes, mut written, mut synced) = (0, 0, false, 0);
    let mut absent = served.absent;
    let mut handed = 0;
    while let Ok(n @ 40..) = device.read(&mut request) {
        let (opcode, unique, body) = (word(&request, 4), double(&request, 8), &request[40..n]);
        let waits = match opcode {
            READ | WRITE => served.silent,
            GETATTR => served.mute,
            _ => None,
        };
        while waits.is_some_and(|waits| waits.load(Ordering::Relaxed)) {
            std::thread::yield_now();
        }
        written |= opcode == WRITE;
        let node = double(&request, 16);
        let is_other = node == OTHER || opcode == LOOKUP && body == b"other\0";
        let other = served.other.filter(|_| is_other);
        let permitted = permissions().and_then(|mut known| known.answer(opcode, body));
        let answer = match opcode {
            FORGET | INTERRUPT => continue,
            _ if let Some(answer) = permitted => answer,
            POLL if let Some(polls) = served.polls => {
                polls.fetch_add(1, Ordering::Relaxed);
                Err(-libc::ENOSYS)
            }
            _ if let Some(file) = other => other::answer(opcode, body, &mut file.lock().unwrap()),
            // struct fuse_init_out of protocol 7.31.
            INIT => Ok({
                let flags = u32::from(served.writeback) * WRITEBACK_CACHE
                    + u32::from(served.mapped) * INIT_EXT;
                let more = u32::from(served.mapped) * DIRECT_IO_ALLOW_MMAP;
                let mut out = words(&[7, 31, 0, flags, 0, 65_536, 1, 0, more]);
                out.resize(64, 0);
                out
            }),
            SETATTR if served.change != 0 && changes % 2 == 0 => {
                changes += 1;
                Err(-served.change)
            }
            SETATTR if served.slow && is_interrupted(device) => Err(-libc::EINTR),
            SETATTR => {
                changes += 1;
                // struct fuse_setattr_in: what is valid, and behind a handle the size.
                if let (Some(shown), true) = (served.shows, word(body, 0) & SIZE != 0) {
                    shown
                        .set_len(double(body, 16))
                        .expect("the file can be cut");
                }
                Ok(shown_or_claimed())
            }
            LOOKUP if absent => Err(-libc::ENOENT),
            MKNOD => {
                absent = false;
                Ok(found())
            }
            LOOKUP => Ok(found()),
            GETATTR if served.inside && node == ROOT => Ok(attributes(0, DIRECTORY)),
            GETATTR => Ok(shown_or_claimed()),
            OPEN if served.open != 0 => Err(-served.open),
            OPEN => Ok(words(&[
                0,
                0,
                u32::from(served.direct) * FOPEN_DIRECT_IO
                    + u32::from(served.kept) * FOPEN_KEEP_CACHE
                    + u32::from(served.stream) * FOPEN_NONSEEKABLE
                    + u32::from(served.once && served.stream) * FOPEN_STREAM,
                0,
            ])),
            READ | WRITE
                if served.fails.1 != 0
                    && double(body, 8) + u64::from(word(body, 16)) > served.fails.0 =>
            {
                Err(-served.fails.1)
            }
            READ => Ok(match served.shows {
                Some(shown) => read_of(shown, double(body, 8), moved(body)),
                None => {
                    let begin = if served.once {
                        handed
                    } else {
                        double(body, 8) as usize
                    };
                    let from = begin.min(data.len());
                    let to = (from + moved(body) as usize).min(data.len());
                    handed = to;
                    data[from..to].to_vec()
                }
            }),
            WRITE if served.slow && is_interrupted(device) => Err(-libc::EINTR),
            // struct fuse_write_out.
            WRITE => {
                let n = moved(body);
                if let Some(shown) = served.shows {
                    let written = shown.write_all_at(&body[40..][..n as usize], double(body, 8));
                    written.expect("the file can be written");
                }
                if let Some(gets) = served.gets {
                    keep(
                        &mut gets.lock().unwrap(),
                        double(body, 8),
                        &body[40..][..n as usize],
                    );
                }
                Ok(words(&[n, 0]))
            }
            LSEEK if served.sparse => sought(body, synced as u64),
            STATFS if served.statfs != 0 => Err(-served.statfs),
            STATFS => Ok(vec![0; 80]),
            FLUSH if served.close != 0 && (!served.once_closed || written) => {
                written = false;
                Err(-served.close)
            }
            FSYNC if served.sync != 0 && (served.never_syncs || syncs % 2 == 0) => {
                syncs += 1;
                Err(-served.sync)
            }
            FSYNC => {
                syncs += 1;
                synced = served.gets.map_or(0, |gets| gets.lock().unwrap().len());
                Ok(Vec::new())
            }
            RELEASE | FLUSH => Ok(Vec::new()),
            _ => Err(-libc::ENOSYS),
        };
        if let (Some(failed), Err(_), READ | WRITE | FSYNC) = (served.failed, &answer, opcode) {
            failed.fetch_add(1, Ordering::Relaxed);
        }
        let (error, body) = answer.map_or_else(|e| (e, Vec::new()), |body| (0, body));
        let mut out = words(&[16 + body.len() as u32, error.cast_unsigned()]);
        out.extend(unique.to_ne_bytes());
        out.extend(body);
        // ENOENT: the caller was interrupted.
        let _ = device.write(&out);
    }
}

/// Mounts a file in a directory of its own; `None` if that fails.
fn mount(mode: u32) -> Option<(File, TempDir)> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let (device, dir) = (device.ok()?, tempfile::tempdir().ok()?);
    mounted(&device, &file_in(&dir), mode).then_some((device, dir))
}

/// The path that is mounted in a directory.
fn file_in(dir: &TempDir) -> PathBuf {
    dir.path().join("file")
}

/// Mounts the file for the duration of a test. Returns `false` if that fails.
///
/// # Panics
///
/// If the test panics.
pub fn with_file(served: Served<'_>, test: impl FnOnce(&Path)) -> bool {
    let mode = if served.inside { DIRECTORY } else { FILE };
    let Some((device, dir)) = mount(mode) else {
        return false;
    };
    let at = file_in(&dir);
    let file = if served.inside {
        at.join("file")
    } else {
        at.clone()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&device, served));
        unmounting(&at, |_| test(&file));
    });
    true
}

/// Mounts a file whose server has ended: each call on it fails with `ENOTCONN`. Returns
/// `false` if mounting fails.
///
/// # Panics
///
/// If the test panics.
pub fn with_file_of_none(test: impl FnOnce(&Path)) -> bool {
    let Some((device, dir)) = mount(FILE) else {
        return false;
    };
    let at = file_in(&dir);
    drop(device);
    unmounting(&at, test);
    true
}

/// Runs the test, and unmounts the file also if the test panics.
fn unmounting(at: &Path, test: impl FnOnce(&Path)) {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(at)));
    let _ = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

fn mounted(device: &File, at: &Path, mode: u32) -> bool {
    let options = format!(
        "fd={},rootmode={mode:o},user_id=0,group_id=0",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).unwrap_or_default();
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    let made = match mode {
        DIRECTORY => std::fs::create_dir(at),
        _ => File::create(at).map(drop),
    };
    made.is_ok()
        && rustix::mount::mount("cord", at, "fuse", flags, Some(options.as_c_str())).is_ok()
}
