//! `-p`: extended attributes (xattr(7)) of every namespace.
//!
//! The kernel decides which attributes the process may set. `trusted` requires
//! `CAP_SYS_ADMIN`. `security` requires what the security module demands.
//! `system` and the namespaces of a file system (`btrfs`) require that file
//! system. A refused attribute is reported and counted; the copy is complete
//! without it. Lack of space for one is a failure, and the remaining steps are
//! done.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use cordboard::Side;
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;

use super::acl::is_nfs4_list;
use super::problems::refused;
use super::value::read_value;
use crate::copy::outcome::{Message, Outcome};
use crate::copy::place::Place;
use crate::signals::retry;

/// A file that has attributes.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A symlink, by an `O_PATH` descriptor. Calls use its name in procfs,
    /// which leads to the symlink itself; `setxattrat(2)` exists only since
    /// Linux 6.13.
    Link(BorrowedFd<'a>),
}

fn name_of(link: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", link.as_raw_fd())
}

impl Node<'_> {
    fn list(self) -> Result<Vec<u8>, Errno> {
        match self {
            Node::Open(fd) => read_value(|buffer| rustix::fs::flistxattr(fd, buffer)),
            Node::Link(fd) => read_value(|buffer| rustix::fs::listxattr(name_of(fd), buffer)),
        }
    }

    fn get(self, name: &CStr) -> Result<Vec<u8>, Errno> {
        match self {
            Node::Open(fd) => read_value(|buffer| rustix::fs::fgetxattr(fd, name, buffer)),
            Node::Link(fd) => read_value(|buffer| rustix::fs::getxattr(name_of(fd), name, buffer)),
        }
    }

    fn set(self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        match self {
            Node::Open(fd) => set(fd, name, value),
            Node::Link(fd) => {
                retry(|| rustix::fs::setxattr(name_of(fd), name, value, XattrFlags::empty()))
            }
        }
    }
}

/// The result of copying attributes; of a failure, the side and the errno.
pub type CopyResult = Result<(), (Side, Errno)>;

/// The names of the extended attributes of a file, each with a NUL behind it.
#[derive(Debug, Default)]
pub struct Names(Vec<u8>);

impl Names {
    /// Those of `source`. A refusal is reported: they count as none.
    pub fn of(
        source: Node<'_>,
        to: &Place<'_>,
        outcome: &mut Outcome,
    ) -> Result<Names, (Side, Errno)> {
        match source.list() {
            // The file system has no attributes, or a filter refuses the call
            // (`ENOSYS`).
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Names::default()),
            // Refused by a filter or a security module.
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => {
                outcome.messages.push(none_copied(to, errno));
                Ok(Names::default())
            }
            names => names.map(Names).map_err(|errno| (Side::Source, errno)),
        }
    }

    /// Those that `which` selects.
    pub fn only(&self, which: impl Fn(&CStr) -> bool) -> impl Iterator<Item = &CStr> {
        let names = self.0.split_inclusive(|b| *b == 0);
        let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
        names.filter(move |name| which(name))
    }
}

/// Gives `sink` these attributes of `source`. Of several failures that are not refusals,
/// returns the first.
pub fn copy_extended<'a>(
    names: impl Iterator<Item = &'a CStr>,
    (source, sink): (Node<'_>, Node<'_>),
    to: &Place<'_>,
    outcome: &mut Outcome,
) -> CopyResult {
    let mut done = Ok(());
    for name in names {
        if let Err(failure) = copy_one(name, (source, sink)) {
            done = done.and(report(name, failure, to, outcome));
        }
    }
    done
}

/// Copies one attribute. `false`: the source has it no more, or it stays with its inode.
pub fn copy_one(name: &CStr, (source, sink): (Node<'_>, Node<'_>)) -> Result<bool, (Side, Errno)> {
    let value = match source.get(name) {
        Ok(value) if is_bound_to_inode(name, &value) => return Ok(false),
        Ok(value) => value,
        // It was removed meanwhile.
        Err(Errno::NODATA) => return Ok(false),
        Err(errno) => return Err((Side::Source, errno)),
    };
    match sink.set(name, &value) {
        // A security policy has set the same value already.
        Err(_) if sink.get(name).as_ref() == Ok(&value) => Ok(true),
        copied => copied.map(|()| true).map_err(|errno| (Side::Sink, errno)),
    }
}

/// Reports an attribute that was not copied; returns a failure that is no refusal.
pub fn report(
    name: &CStr,
    (side, errno): (Side, Errno),
    to: &Place<'_>,
    outcome: &mut Outcome,
) -> CopyResult {
    match errno {
        errno if is_refusal(errno) => outcome.messages.push(not_copied(to, name, errno)),
        // Other files may have fewer attributes.
        errno if side == Side::Sink && is_lack_of_room(errno) => {
            let what = format!("attribute {}", name.to_string_lossy());
            outcome.add(Message::Problem(refused(to, &what, errno)));
        }
        errno => return Err((side, errno)),
    }
    Ok(())
}

/// Reports the attributes of a symlink, none of which can be copied.
pub fn report_missing(link: &Path, to: &Place<'_>, errno: Errno, outcome: &mut Outcome) {
    let names = read_value(|buffer| rustix::fs::llistxattr(link, buffer)).unwrap_or_default();
    for name in Names(names).only(|_| true) {
        outcome.messages.push(not_copied(to, name, errno));
    }
}

/// Whether it is an HMAC that the kernel computes for one inode, and anew for
/// another: `security.evm` with the first byte `EVM_XATTR_HMAC`
/// (security/integrity). A signature in that attribute is valid for the copy.
fn is_bound_to_inode(name: &CStr, value: &[u8]) -> bool {
    name == c"security.evm" && value.first() == Some(&2)
}

/// Whether it is a refusal, and not a failure of the file system (setxattr(2),
/// xattr(7)): the file system has no such attributes (`EOPNOTSUPP`), or a
/// filter refuses the call (`ENOSYS`); the process may not set them (`EPERM`,
/// `EACCES`: `user` attributes need write permission); the security module
/// rejects the value (`EINVAL`).
pub fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL
    )
}

/// Whether there is no space (`ENOSPC`, `EDQUOT`), or the value is larger than
/// the file system allows (`ERANGE`, `E2BIG`).
fn is_lack_of_room(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOSPC | Errno::DQUOT | Errno::RANGE | Errno::TOOBIG
    )
}

/// The list of names could not be read.
fn none_copied(to: &Place<'_>, errno: Errno) -> Message {
    let errno = cordboard::Errno::from(errno);
    let what = "the extended attributes were not copied";
    Message::AttributeLost {
        line: format!("cordboard: {to}: warning: {what}: {errno} listing their names"),
        reason: Some(format!("{what}: {errno}")),
    }
}

fn not_copied(to: &Place<'_>, name: &CStr, errno: Errno) -> Message {
    let users = name.to_bytes().starts_with(b"user.");
    // Such a reason applies to every file there.
    let general = !users && is_refusal(errno) && errno != Errno::INVAL;
    let errno = cordboard::Errno::from(errno);
    let name = name.to_string_lossy();
    Message::AttributeLost {
        line: format!("cordboard: {to}: warning: attribute {name} was not copied: {errno}"),
        reason: general.then(|| format!("{name}: {errno}")),
    }
}

/// Sets one attribute. That needs write permission on the file, not only on the
/// descriptor (xattr(7)): a read-only file gets it until its final mode is set. A list comes
/// after that mode.
fn set(sink: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let set = || retry(|| rustix::fs::fsetxattr(sink, name, value, XattrFlags::empty()));
    match set() {
        Err(Errno::ACCESS) if !is_nfs4_list(name) => {
            let now = retry(|| cordboard::fstat(sink))?.st_mode & 0o777;
            // If the process may not do this, the attribute is refused.
            retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(now | 0o200)))
                .map_err(|_| Errno::ACCESS)?;
            set()
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without procfs.
    #[test]
    fn what_a_symlink_goes_without_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let set = rustix::fs::lsetxattr(&link, "trusted.cord", b"x", XattrFlags::empty());
        let mut outcome = Outcome::default();
        report_missing(
            &link,
            &Place::top(Path::new("copy")),
            Errno::NOENT,
            &mut outcome,
        );
        let lines: Vec<String> = outcome
            .messages
            .iter()
            .map(|message| format!("{message:?}"))
            .collect();
        if set.is_err() {
            return testkit::skip::here("no attributes of symlinks");
        }
        let all = lines.join(" ");
        assert!(
            all.contains("copy: warning: attribute trusted.cord was not copied"),
            "{all}"
        );
    }

    #[test]
    fn only_the_seal_of_an_inode_stays_with_it() {
        assert!(is_bound_to_inode(c"security.evm", &[2, 7]));
        assert!(!is_bound_to_inode(c"security.evm", &[5, 7]));
        assert!(!is_bound_to_inode(c"security.ima", &[2, 7]));
    }
}
