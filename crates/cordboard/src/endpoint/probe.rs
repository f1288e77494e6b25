//! Queries of the facts about a descriptor. They change nothing.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FileType, OFlags};

use super::direct::direct_alignment;
use super::facts::Facts;
use super::file_id::FileId;
use super::filesystem::Filesystem;
use super::kind::{Kind, Side};
use super::mounts;
use super::reopen::by_name;
use super::served::may_be_served;
use super::socket;
use super::storage::Storage;
use super::terminal::is_terminal;
use crate::errno::Errno;
use crate::sys;

/// A query that every transfer needs has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unexamined {
    /// The call, as in its man page.
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

impl Unexamined {
    fn by<E: Into<Errno>>(call: &'static str) -> impl Fn(E) -> Unexamined {
        move |errno| Unexamined {
            call,
            errno: errno.into(),
        }
    }
}

/// Collects all facts about a descriptor: `fstat(2)`, `F_GETFL`, and queries that
/// depend on its type.
///
/// `beside`: the facts of the other endpoint, if known; a file on the same device is on
/// the same file system. `offset`: the request's offset, in place of the position. Each
/// saves a system call per endpoint, which matters for ten thousand small files.
pub(super) fn facts(
    fd: BorrowedFd<'_>,
    beside: Option<&Facts>,
    offset: Option<u64>,
) -> Result<Facts, Unexamined> {
    let stat = sys::fstat(fd).map_err(Unexamined::by("fstat(2)"))?;
    let flags = rustix::fs::fcntl_getfl(fd).map_err(Unexamined::by("fcntl(2)"))?;
    let mut facts = of_any(&stat, flags);
    let id = FileId {
        device: stat.st_dev,
        inode: stat.st_ino,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            facts.id = Some(id);
            facts.position = offset.or_else(|| position(fd));
            let known = beside.filter(|other| other.kind == Kind::File && same_device(other, id));
            facts.filesystem = match known {
                Some(other) => other.filesystem,
                None => filesystem(fd),
            };
            of_regular_file(fd, &stat, &mut facts);
        }
        FileType::Directory => facts.kind = Kind::Directory,
        FileType::BlockDevice => {
            facts.kind = Kind::BlockDevice;
            facts.id = Some(FileId {
                device: stat.st_rdev,
                inode: 0,
            });
            facts.storage = Storage::of(fd, stat.st_rdev);
            facts.position = offset.or_else(|| position(fd));
            facts.size = sys::block_device_size(fd).ok();
        }
        FileType::CharacterDevice => of_character_device(fd, stat.st_rdev, &mut facts),
        FileType::Fifo => {
            facts.kind = if is_unnamed(fd, stat.st_dev) {
                Kind::Pipe
            } else {
                Kind::Fifo
            };
            facts.id = Some(id);
        }
        FileType::Socket => {
            let known = socket::look(fd, id.inode, &mut facts);
            known.map_err(Unexamined::by("getsockopt(2)"))?;
            facts.id = Some(id);
        }
        _ => {
            let link = link_name(fd).unwrap_or_default();
            facts.kind = anonymous_kind(&link).unwrap_or(Kind::Other);
            facts.polls_error = !facts.nonblocking && polls_error(fd, &link);
        }
    }
    if facts.is_direct() {
        facts.alignment = direct_alignment(fd);
    }
    Ok(facts)
}

/// Returns the facts that do not depend on the type of the file.
fn of_any(stat: &rustix::fs::Stat, flags: OFlags) -> Facts {
    Facts {
        kind: Kind::Other,
        id: None,
        storage: None,
        // O_PATH allows no reads or writes; access mode 3 is for ioctl only.
        readable: readable(flags),
        writable: writable(flags),
        append: flags.contains(OFlags::APPEND),
        nonblocking: flags.contains(OFlags::NONBLOCK),
        o_direct: flags.contains(OFlags::DIRECT),
        unpaged: false,
        memory: false,
        waits_for_entropy: false,
        takes_at_once: false,
        polls_for_others: false,
        polls_error: false,
        listening: false,
        peeks: false,
        tells_length: false,
        seqpacket: false,
        zero_ends: false,
        paced: false,
        position: None,
        size: None,
        allocated: None,
        block: u32::try_from(stat.st_blksize).unwrap_or(4096),
        filesystem: None,
        may_be_served: false,
        alignment: None,
        cached: Err(Errno::ENODATA),
    }
}

/// Adds the facts of a regular file whose file system is known.
fn of_regular_file(fd: BorrowedFd<'_>, stat: &rustix::fs::Stat, facts: &mut Facts) {
    facts.size = u64::try_from(stat.st_size).ok();
    facts.allocated = (u64::try_from(stat.st_blocks).ok())
        // A server of FUSE may return any number.
        .map(|blocks| blocks.saturating_mul(512));
    facts.kind = if facts.filesystem.is_some_and(Filesystem::is_pseudo) {
        Kind::Pseudo
    } else if stat.st_nlink == 0
        && facts.filesystem.is_none_or(Filesystem::is_in_memory)
        && link_name(fd).is_some_and(|l| l.starts_with(b"/memfd:"))
    {
        Kind::Memfd
    } else {
        Kind::File
    };
    facts.polls_for_others = facts.filesystem.is_some_and(|fs| polls_for_others(fd, fs));
    let is_overlay = facts.filesystem.is_some_and(Filesystem::is_overlay);
    facts.may_be_served =
        is_overlay && may_be_served(sys::attributes(fd).known, || sys::maps_extents(fd));
    facts.unpaged = facts.readable && facts.may_be_on(Filesystem::is_fuse) && is_unpaged(fd);
    if facts.unpaged && facts.filesystem.is_none() && mounts::is_fuse(stat.st_dev) {
        facts.filesystem = Some(Filesystem::FUSE);
    }
    // Anonymous inodes are regular files within the kernel since Linux 6.16. fstat(2) hides
    // that (`anon_inode_getattr`, fs/anon_inodes.c), so this is a precaution.
    if (facts.position.is_none() || facts.filesystem.is_none_or(is_anonymous))
        && let Some(link) = link_name(fd)
        && let Some(kind) = anonymous_kind(&link)
    {
        facts.kind = kind;
        facts.polls_error = !facts.nonblocking && polls_error(fd, &link);
        facts.size = None;
        facts.id = None;
        facts.position = None;
    }
}

fn of_character_device(fd: BorrowedFd<'_>, number: u64, facts: &mut Facts) {
    facts.kind = if is_terminal(fd) {
        Kind::Tty
    } else {
        Kind::CharDevice
    };
    facts.memory = is_memory(number);
    // Documentation/admin-guide/devices.txt
    facts.waits_for_entropy = number == rustix::fs::makedev(1, 8);
    facts.takes_at_once = number == rustix::fs::makedev(1, 11);
    // Memory devices seek; terminals do not.
    facts.position = position(fd);
}

/// Whether it is null, zero, full, random or urandom
/// (Documentation/admin-guide/devices.txt). kmsg, of the same major number, has
/// records.
fn is_memory(device: u64) -> bool {
    use rustix::fs::{major, minor};
    major(device) == 1 && matches!(minor(device), 3 | 5 | 7 | 8 | 9)
}

/// Whether every read, or every write, of the descriptor fails with `EINVAL`, as for an
/// epoll instance, a pidfd or a ring.
///
/// A read or write of an empty vector shows this without a call of the driver:
/// `vfs_readv` and `vfs_writev` in fs/read_write.c check `FMODE_CAN_READ` and
/// `FMODE_CAN_WRITE` before they return 0 for an empty vector, since Linux 3.16; older
/// kernels check the methods. BPF objects have methods that refuse (`bpf_dummy_read`,
/// kernel/bpf/syscall.c), and some of them never poll ready.
pub(super) fn lacks_operation(fd: BorrowedFd<'_>, facts: &Facts, side: Side) -> bool {
    let done = match (facts.kind, side) {
        (Kind::Other, _) if link_name(fd).is_some_and(|l| l == b"anon_inode:bpf-map") => {
            return true;
        }
        (Kind::Other | Kind::CharDevice, Side::Source) if !facts.memory => {
            rustix::io::readv(fd, &mut [])
        }
        (
            Kind::Other | Kind::CharDevice | Kind::Timerfd | Kind::Signalfd | Kind::Inotify,
            Side::Sink,
        ) if !facts.memory => rustix::io::writev(fd, &[]),
        _ => return false,
    };
    done == Err(rustix::io::Errno::INVAL)
}

/// Whether `poll(2)` of a generated file reports something other than bytes to read,
/// and reads never wait:
///
/// * a message queue polls readable if it has messages (`mqueue_poll_file`,
///   ipc/mqueue.c), while a read returns its attributes (`mqueue_read_file`);
/// * the list of input devices, and since Linux 6.14 a trace event's histogram, poll
///   readable if they have changed since the last poll (`input_proc_devices_poll`,
///   drivers/input/input.c; `event_hist_poll`, kernel/trace/trace_events_hist.c);
/// * a relay file polls readable if it has a whole sub-buffer (`relay_file_poll`,
///   kernel/relay.c), while a read also returns a part of one, and 0 if there is none;
/// * a channel of an RPC cache polls readable if it has a request, while a read returns 0
///   if there is none (`cache_poll`, `cache_read`, net/sunrpc/cache.c).
///
/// No other file found in procfs, sysfs, debugfs and tracefs of Linux 6.18 polls so,
/// except those whose reads wait: /proc/kmsg, `trace_pipe`, `trace_pipe_raw`. A relay file of
/// another driver has any name in debugfs.
fn polls_for_others(fd: BorrowedFd<'_>, filesystem: Filesystem) -> bool {
    match filesystem.name() {
        Some("mqueue") => true,
        Some("proc") => link_name(fd).is_some_and(|link| names_one_of_procfs(&link)),
        Some("tracefs" | "debugfs") => {
            link_name(fd).is_some_and(|link| link.ends_with(b"/hist") || is_relay(&link))
        }
        _ => false,
    }
}

fn names_one_of_procfs(link: &[u8]) -> bool {
    let is_channel = link.ends_with(b"/channel") && is_below(link, b"/net/rpc/");
    is_channel || link.ends_with(b"/bus/input/devices")
}

/// Whether this is the name of a relay file: of an ath9k to ath12k device, of an i915 device, or
/// of blktrace. The number of a processor follows each of these names (`relay_create_buf_file`,
/// kernel/relay.c).
fn is_relay(link: &[u8]) -> bool {
    let digits = link.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let name = &link[..link.len() - digits];
    let is_trace = name.ends_with(b"/trace") && is_below(name, b"/block/");
    digits > 0 && (is_trace || name.ends_with(b"/spectral_scan") || name.ends_with(b"/guc_log"))
}

fn is_below(link: &[u8], folder: &[u8]) -> bool {
    link.windows(folder.len()).any(|part| part == folder)
}

fn same_device(other: &Facts, id: FileId) -> bool {
    other.id.is_some_and(|other| other.device == id.device)
}

const PIPEFS_MAGIC: u64 = 0x5049_5045;
const ANON_INODE_FS_MAGIC: u64 = 0x0904_1934;

fn is_anonymous(fs: Filesystem) -> bool {
    fs.0 == ANON_INODE_FS_MAGIC
}

fn readable(flags: OFlags) -> bool {
    let mode = flags & OFlags::RWMODE;
    !flags.contains(OFlags::PATH) && (mode == OFlags::RDONLY || mode == OFlags::RDWR)
}

fn writable(flags: OFlags) -> bool {
    let mode = flags & OFlags::RWMODE;
    !flags.contains(OFlags::PATH) && (mode == OFlags::WRONLY || mode == OFlags::RDWR)
}

fn position(fd: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::tell(fd).ok()
}

/// Whether a pipe has no name. Unnamed pipes are on pipefs, which has a single mount,
/// so its device number is queried once per process.
fn is_unnamed(fd: BorrowedFd<'_>, device: u64) -> bool {
    static PIPEFS: AtomicU64 = AtomicU64::new(u64::MAX);
    if PIPEFS.load(Ordering::Relaxed) == device {
        return true;
    }
    let unnamed = filesystem(fd).is_some_and(|fs| fs.0 == PIPEFS_MAGIC);
    if unnamed {
        PIPEFS.store(device, Ordering::Relaxed);
    }
    unnamed
}

/// Whether a FUSE file is read past the page cache. `fuse_file_mmap` in fs/fuse/file.c
/// refuses a shared mapping of a file whose server has set `FOPEN_DIRECT_IO`, while
/// `splice(2)` from it reads the page cache (`filemap_splice_read`, and
/// `generic_file_splice_read` before Linux 6.5). The mapping is allowed, and the file
/// not detected, if the server has set `FUSE_DIRECT_IO_ALLOW_MMAP` (since Linux 6.6). An overlay
/// passes both calls on to the file below (`ovl_mmap`, `ovl_splice_read`,
/// fs/overlayfs/file.c).
///
/// `ENODEV` is certain. After any other error (`ENOMEM`, `EAGAIN`, `EPERM`) the file
/// may bypass the page cache, and the result is true.
fn is_unpaged(fd: BorrowedFd<'_>) -> bool {
    sys::map_shared(fd).is_err()
}

/// Queries the file system; `None` if the query fails. A FUSE server may fail
/// `statfs(2)` with any errno, and a filter may refuse it, so the file may then be on
/// any file system.
fn filesystem(fd: BorrowedFd<'_>) -> Option<Filesystem> {
    rustix::fs::fstatfs(fd).ok().as_ref().map(Filesystem::of)
}

/// Returns the descriptor's link in procfs; `None` without a procfs.
fn link_name(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    by_name(fd, |name| rustix::fs::readlink(name, Vec::new()))
        .ok()
        .map(|name| name.into_bytes())
}

fn anonymous_kind(link: &[u8]) -> Option<Kind> {
    match link {
        b"anon_inode:[eventfd]" => Some(Kind::Eventfd),
        b"anon_inode:[timerfd]" => Some(Kind::Timerfd),
        b"anon_inode:[signalfd]" => Some(Kind::Signalfd),
        b"anon_inode:inotify" | b"anon_inode:[inotify]" => Some(Kind::Inotify),
        l if l.starts_with(b"anon_inode:") => Some(Kind::Other),
        _ => None,
    }
}

/// Whether it is a userfaultfd that can be read by `RWF_NOWAIT`. A read that is shorter than an
/// event takes none: it fails with `EINVAL` (`userfaultfd_read_iter`, fs/userfaultfd.c), and
/// with `EOPNOTSUPP` before Linux 6.10, which lacks that function. A filter may refuse the call.
fn polls_error(fd: BorrowedFd<'_>, link: &[u8]) -> bool {
    use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    link == b"anon_inode:[userfaultfd]"
        // Offset -1: at the current position.
        && preadv2(fd, &mut parts, u64::MAX, ReadWriteFlags::NOWAIT) == Err(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn kind(fd: impl AsFd) -> Kind {
        facts(fd.as_fd(), None, None).unwrap().kind
    }

    #[test]
    fn kinds_that_need_no_privilege() {
        use rustix::event::{EventfdFlags, eventfd};
        use rustix::fs::MemfdFlags;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        use testkit::needs;
        assert_eq!(kind(tempfile::tempfile().unwrap()), Kind::File);
        let memfd = rustix::fs::memfd_create("m", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(kind(&memfd), Kind::Memfd);
        assert_eq!(
            kind(std::fs::File::open("/proc/self/status").unwrap()),
            Kind::Pseudo
        );
        assert_eq!(
            kind(std::fs::File::open("/dev/zero").unwrap()),
            Kind::CharDevice
        );
        for (name, memory) in [("/dev/urandom", true), ("/dev/ptmx", false)] {
            if let Ok(file) = std::fs::File::open(name) {
                assert_eq!(facts(file.as_fd(), None, None).unwrap().memory, memory);
            }
        }
        assert_eq!(kind(std::fs::File::open("/").unwrap()), Kind::Directory);
        let (r, _w) = rustix::pipe::pipe().unwrap();
        assert_eq!(kind(&r), Kind::Pipe);
        if !needs::missing("the kind of an eventfd", &[needs::Need::Eventfd]) {
            let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            assert_eq!(kind(counter), Kind::Eventfd);
        }
        assert_eq!(
            kind(rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap()),
            Kind::Inotify
        );
        for (socket, expected) in [
            (SocketType::STREAM, Kind::UnixStream),
            (SocketType::DGRAM, Kind::UnixDatagram),
            (SocketType::SEQPACKET, Kind::UnixSeqpacket),
        ] {
            let (a, _b) =
                socketpair(AddressFamily::UNIX, socket, SocketFlags::CLOEXEC, None).unwrap();
            assert_eq!(kind(&a), expected);
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let facts = facts(listener.as_fd(), None, None).unwrap();
        assert_eq!(facts.kind, Kind::Tcp);
        assert!(facts.listening);
    }

    #[test]
    fn files_that_poll_for_others_have_these_names() {
        for (name, expected) in [
            ("ieee80211/phy0/ath9k/spectral_scan0", true),
            ("ieee80211/phy0/ath9k/spectral_scan_ctl", false),
            ("dri/0/gt0/uc/guc_log12", true),
            ("block/sda/trace3", true),
            ("block/sda/trace", false),
            ("tracing/trace3", false),
            ("3", false),
        ] {
            let link = format!("/sys/kernel/debug/{name}");
            assert_eq!(is_relay(link.as_bytes()), expected, "{name}");
        }
        assert!(!is_relay(b""));
        // /proc/net is a symlink.
        assert!(names_one_of_procfs(b"/proc/7/net/rpc/nfsd.fh/channel"));
        assert!(!names_one_of_procfs(b"/proc/7/net/rpc/nfsd.fh/content"));
        assert!(names_one_of_procfs(b"/proc/bus/input/devices"));
    }

    #[test]
    fn the_same_flag_is_packets_to_a_pipe_and_direct_i_o_to_a_file() {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (_reader, writer) = pipe_with(PipeFlags::DIRECT).unwrap();
        let pipe = facts(writer.as_fd(), None, None).unwrap();
        assert!(pipe.is_packet_pipe() && !pipe.is_direct());
        let file = Facts {
            o_direct: true,
            ..Facts::plain(Kind::File)
        };
        assert!(file.is_direct() && !file.is_packet_pipe());
        assert!(!Facts::plain(Kind::File).is_direct());
    }

    #[test]
    fn an_o_path_descriptor_neither_reads_nor_writes() {
        let fd = rustix::fs::open("/dev/null", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let facts = facts(fd.as_fd(), None, None).unwrap();
        assert!(!facts.readable && !facts.writable);
    }
}
