//! Hints: what helps, by errno, side and action.

use cordboard::{Errno, Side};

use super::action::Action;

/// Returns one line of help; `None` if the meaning of the errno is enough.
pub fn hint(errno: Errno, side: Side, action: Action) -> Option<&'static str> {
    use Action::{
        Connect, Listen, Open, Symlink, Transfer, TransferBlockDevice, TransferCharDevice,
        TransferProcFile, TransferRecords, TransferSocket,
    };
    match action {
        Connect | Listen | TransferSocket => {
            if let Some(hint) = socket_hint(errno, side, action) {
                return Some(hint);
            }
        }
        _ => {
            if let Some(hint) = file_server_hint(errno) {
                return Some(hint);
            }
        }
    }
    use Side::{Sink, Source};
    Some(match (errno, side, action) {
        (Errno::ENOENT, Source, Open) => "check the spelling of the path",
        (Errno::ENOENT, Sink, Open) => {
            "its directory is missing (mkdir -p), or its file system creates no files"
        }
        (Errno::EACCES, Source, Open) => {
            "read permission is required, and search permission (x) for its directories"
        }
        (Errno::EACCES, Sink, Open) => {
            "write permission is required, for the file or for its directory"
        }
        (Errno::EACCES, Sink, Symlink) => "write permission is required for its directory",
        // vfs_symlink, fs/namei.c: vfat, exfat and others.
        (Errno::EPERM, Sink, Symlink) => {
            "its file system may have no symlinks, or its directory is immutable (lsattr)"
        }
        // vfat_create, fs/fat/namei_vfat.c: `?`, `:`; utf8only of ZFS.
        (Errno::EINVAL | Errno::EILSEQ, Sink, Open | Symlink) => {
            "its file system may not permit this name: rename it, or use tar"
        }
        // sendmsg(2) of a packet that a rule of the firewall drops.
        (Errno::EPERM, Sink, Connect | Listen | TransferSocket) => {
            "a firewall or a security policy forbids it"
        }
        (Errno::EPERM, Sink, _) => {
            "it may be immutable (lsattr), sealed or read-only, or a security policy forbids it"
        }
        (Errno::EISDIR, Source, _) => "to copy a directory, use cordboard copy -r",
        (Errno::EISDIR, Sink, _) => "specify a file in the directory",
        (Errno::ENOTDIR, ..) => "a component of the path is not a directory",
        (Errno::ELOOP, ..) => "too many symlinks: they may form a loop",
        (Errno::ENXIO, _, Open) => {
            "for a socket, use unix:PATH; for a device, check that it is present"
        }
        (Errno::ENOSPC, Sink, TransferBlockDevice) => {
            "the end of the device is reached, or its thin pool is full"
        }
        // bind(2) creates the file of a socket, also of a source.
        (Errno::ENOSPC, Sink, _) | (Errno::ENOSPC, _, Listen) => {
            "free some space (df) or inodes (df -i), or write elsewhere"
        }
        (Errno::EDQUOT, Sink, _) | (Errno::EDQUOT, _, Listen) => "the disk quota is used up",
        (Errno::EFBIG, Sink, _) => {
            "the file size limit is reached (ulimit -f, or that of the file system)"
        }
        (Errno::EROFS, Sink, _) | (Errno::EROFS, _, Listen) => {
            "the file system is mounted read-only"
        }
        // deny_write_access; IS_SWAPFILE in generic_write_checks, mm/filemap.c.
        (Errno::ETXTBSY, Sink, _) => {
            "it is a running program (copy to a new name, then mv), or an active swap file"
        }
        (Errno::EMFILE, ..) => "raise the limit of open files (ulimit -n)",
        (Errno::ENFILE, ..) => "raise the system's limit of open files (sysctl fs.file-max)",
        // A connection that was reset or timed out before the write is EPIPE as well.
        (Errno::EPIPE, Sink, TransferSocket) => {
            "its peer has closed it, or the connection was reset or timed out"
        }
        (Errno::EPIPE, Sink, Transfer) => "its reader has closed it",
        (Errno::EBADF, Source, _) => "it must be open for reading",
        (Errno::EBADF, Sink, _) => "it must be open for writing",
        (Errno::ESPIPE, Source, _) => "only files have offsets: omit --offset",
        (Errno::ESPIPE, Sink, _) => "only files and block devices have offsets: omit --sink-offset",
        (Errno::EIO, _, TransferCharDevice) => "the device failed, or the terminal was hung up",
        // net/tls/tls_sw.c: a record that is not data, as read(2) reports it.
        (Errno::EIO, _, TransferSocket) => {
            "the link failed, or a TLS control record arrived (kTLS)"
        }
        // proc_reg_write, fs/proc/inode.c; mem_rw, fs/proc/base.c.
        (Errno::EIO, Source, TransferProcFile) => {
            "the kernel has no data at this offset: try --offset"
        }
        (Errno::EIO, Sink, TransferProcFile) => "the kernel does not accept this write",
        (Errno::EIO, ..) => "the device or its link failed: see dmesg",
        // eventfd_read, fs/eventfd.c; timerfd_read_iter; inotify_read; signalfd_read_iter.
        (Errno::EINVAL, Source, TransferRecords) => {
            "a read returns whole records (8 bytes for an eventfd): specify a larger --size"
        }
        // BLK_STS_MEDIUM, block/blk-core.c; or the library, of a device that became smaller.
        (Errno::ENODATA, Source, TransferBlockDevice) => {
            "the medium has a bad sector, or the device was removed: see dmesg"
        }
        (Errno::ENODATA, Source, Transfer) => "it was truncated while it was read",
        _ => return None,
    })
}

/// Errnos that have this meaning for sockets only.
fn socket_hint(errno: Errno, side: Side, action: Action) -> Option<&'static str> {
    use Action::{Connect, Listen, TransferSocket};
    Some(match (errno, side, action) {
        (Errno::ENOENT, _, Connect) => "the socket does not exist: start the listener first",
        (Errno::ENOENT, _, Listen) => "create its directory first (mkdir -p)",
        // connect(2): of a path, or without SO_BROADCAST.
        (Errno::EACCES, _, Connect) => {
            "a socket path requires write permission; a broadcast address is not supported"
        }
        (Errno::EACCES, _, Listen) => {
            "a port below 1024 requires privilege; a path, write permission for its directory"
        }
        (Errno::ENAMETOOLONG, _, Connect | Listen) => {
            "the path of a socket has at most 108 bytes, an abstract name 107"
        }
        (Errno::ECONNRESET, ..) => "the peer reset the connection",
        (Errno::ECONNREFUSED, ..) => {
            "nothing listens there: check the address, or start the listener"
        }
        (Errno::ETIMEDOUT, ..) => "the peer does not respond: check the address and the firewall",
        (Errno::EHOSTUNREACH | Errno::ENETUNREACH, ..) => "there is no route: check the network",
        (Errno::EADDRINUSE, ..) => "choose another address, or end the process that uses it",
        (Errno::EADDRNOTAVAIL, ..) => "it is not an address of this machine",
        (Errno::EMSGSIZE, Side::Sink, TransferSocket) => {
            "the datagram is too long: specify a smaller --block"
        }
        (Errno::EDESTADDRREQ | Errno::ENOTCONN, ..) => "the socket is not connected to a peer",
        (Errno::EPROTOTYPE, ..) => {
            "the socket has another type: try unix:, unix-dgram: or unix-seqpacket:"
        }
        _ => return None,
    })
}

/// Errnos of sockets from a file or a device: its file system has a server, in
/// user space or on the network, or the disk is on the network.
fn file_server_hint(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        // fuse_get_req, fs/fuse/dev.c.
        Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ECONNREFUSED => {
            "the server of its file system has ended: unmount it, and mount it again"
        }
        // NFS mounted with `soft`; BLK_STS_TIMEOUT, block/blk-core.c.
        Errno::ETIMEDOUT => "its file server or device does not respond: see dmesg",
        Errno::EHOSTDOWN | Errno::EHOSTUNREACH | Errno::ENETUNREACH => {
            "its file server is unreachable: check the network"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_depends_on_the_side() {
        let source = hint(Errno::ENOENT, Side::Source, Action::Open);
        let sink = hint(Errno::ENOENT, Side::Sink, Action::Open);
        assert!(source.is_some() && sink.is_some() && source != sink);
        assert_eq!(hint(Errno::EDOM, Side::Sink, Action::Transfer), None);
    }

    /// The hint for one kind of descriptor does not mention another kind.
    #[test]
    fn the_hint_depends_on_the_kind_of_descriptor() {
        use Action::*;
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Action::transfer(&a), TransferSocket);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Action::transfer(&null), TransferCharDevice);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(Action::transfer(&file), Transfer);
        let pseudo = std::fs::File::open("/proc/version").unwrap();
        assert_eq!(Action::transfer(&pseudo), TransferProcFile);
        // `EIO` may be an error of a device there.
        let pseudo = std::fs::File::open("/sys/kernel/mm/transparent_hugepage/enabled");
        if let Ok(pseudo) = pseudo {
            assert_eq!(Action::transfer(&pseudo), Transfer);
        }
        // A filter may refuse the call.
        if let Ok(counter) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
            assert_eq!(Action::transfer(&counter), TransferRecords);
        }
        let at = |errno, action| hint(errno, Side::Sink, action).unwrap_or("");
        for action in [Open, Transfer, TransferBlockDevice, Sync, ReadBack] {
            assert!(at(Errno::ENOTCONN, action).contains("server of its file system"));
            assert!(at(Errno::ETIMEDOUT, action).contains("file server"));
            assert!(at(Errno::ECONNREFUSED, action).contains("server of its file system"));
            for errno in [Errno::ECONNRESET, Errno::EADDRINUSE] {
                assert_eq!(at(errno, action), "");
            }
        }
        for action in [Connect, Listen, TransferSocket] {
            assert!(at(Errno::ENOTCONN, action).contains("the socket"));
            assert!(at(Errno::ETIMEDOUT, action).contains("peer"));
            assert!(!at(Errno::EPERM, action).contains("lsattr"));
        }
        assert!(at(Errno::ENOSPC, TransferBlockDevice).contains("the end of the device"));
        for action in [TransferSocket, TransferProcFile] {
            assert!(!at(Errno::EIO, action).contains("dmesg"));
        }
        assert!(at(Errno::EPERM, Symlink).contains("no symlinks"));
        assert!(!at(Errno::EPERM, Open).contains("symlinks"));
        for errno in [Errno::EINVAL, Errno::EILSEQ] {
            assert!(at(errno, Open).contains("this name") && at(errno, Transfer).is_empty());
        }
        let damaged = hint(Errno::ENODATA, Side::Source, TransferBlockDevice).unwrap_or("");
        assert!(damaged.contains("medium"));
    }

    #[test]
    fn each_hint_is_one_short_line() {
        use Action::*;
        // A new variant that is missing here does not compile.
        let next = |action: &Action| {
            Some(match action {
                Open => Symlink,
                Symlink => Connect,
                Connect => Listen,
                Listen => Truncate,
                Truncate => Transfer,
                Transfer => TransferSocket,
                TransferSocket => TransferBlockDevice,
                TransferBlockDevice => TransferCharDevice,
                TransferCharDevice => TransferProcFile,
                TransferProcFile => TransferRecords,
                TransferRecords => List,
                List => Sync,
                Sync => ReadBack,
                ReadBack => return None,
            })
        };
        let all: Vec<Action> = std::iter::successors(Some(Open), next).collect();
        assert_eq!(all.len(), ReadBack as usize + 1);
        for number in 1..134 {
            for side in [Side::Source, Side::Sink] {
                for action in all.iter().copied() {
                    let text = hint(Errno::from_raw(number), side, action).unwrap_or("");
                    assert!(!text.contains('\n') && text.len() < 90 && !text.ends_with('.'));
                }
            }
        }
    }
}
