//! `-p`: owner, extended attributes, access control lists, mode and times, in
//! an order in which none undoes another: a change of owner removes
//! `security.capability`, and a change of mode alters the access control list. A POSIX list has
//! the mode as its mask, and comes before the mode. An NFSv4 list comes after it (`nfs4.rs`).

use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::acl;
use super::extended::{CopyResult, Names, Node, copy_extended};
use super::nfs4::set_mode_and_lists;
use super::owner::owner;
use super::problems::{owner_not_kept, refused, unread};
use super::restrict::restrict_before_owner;
use crate::copy::job::Job;
use crate::copy::outcome::{Message, Outcome};
use crate::copy::place::Place;
use crate::files::kind;
use crate::files::times;
use crate::problem::Problem;
use crate::signals::retry;

/// The attributes, for messages.
const EXTENDED: &str = "extended attributes";

impl Job {
    /// Gives `sink` the attributes of `source`. `stat` was taken before the
    /// source was read. `created`: this command has made the sink, with a mode
    /// for its owner alone.
    pub fn preserve(
        &self,
        (from, source): (&Place<'_>, BorrowedFd<'_>),
        (to, sink, created): (&Place<'_>, BorrowedFd<'_>, bool),
        stat: &Stat,
        outcome: &mut Outcome,
    ) -> Result<(), Problem> {
        // A refused attribute does not affect the others. The first problem is
        // reported.
        let mut problem = None;
        let mut done = |what: &str, done: CopyResult| {
            if let Err((side, errno)) = done {
                problem.get_or_insert_with(|| match side {
                    Side::Source => unread(from, to, what, errno),
                    Side::Sink => refused(to, what, errno),
                });
            }
        };
        let setting = |errno| (Side::Sink, errno);
        let (uid, gid) = owner(stat);
        let mut mode = stat.st_mode & 0o7777;
        let directory = kind(stat) == FileType::Directory;
        let restricted = match created {
            true => Ok(()),
            false => retry(|| cordboard::fstat(sink))
                .and_then(|now| restrict_before_owner((sink, &now), (source, stat))),
        };
        let owned = restricted.and_then(|()| retry(|| rustix::fs::fchown(sink, uid, gid)));
        if let Err(errno) = owned {
            // The process may set the group to one of its own (chown(2)).
            if restricted.is_ok() {
                let _ = retry(|| rustix::fs::fchown(sink, None, gid));
            }
            // Set-id bits must not apply to another owner. The sticky bit of a directory only
            // restricts.
            let kept = if directory { 0o1777 } else { 0o777 };
            let special = mode & !kept;
            mode &= kept;
            match errno {
                // Only root changes owners (EPERM; EACCES: of some CIFS servers), and
                // only to those known to its user namespace (EINVAL, user_namespaces(7)).
                // EPERM of a change of mode: another user owns the file (chmod(2)).
                Errno::PERM | Errno::ACCESS | Errno::INVAL => {
                    outcome.add(owner_not_kept(to, errno));
                    if special != 0 {
                        outcome.add(Message::Unkept);
                    }
                }
                errno if restricted.is_err() => done("mode", Err(setting(errno))),
                errno => done("owner", Err(setting(errno))),
            }
        }
        // `user` attributes before the final mode, which may forbid writing.
        let both = (Node::Open(source), Node::Open(sink));
        let names = Names::of(both.0, to, outcome).unwrap_or_else(|failed| {
            done(EXTENDED, Err(failed));
            Names::default()
        });
        let others = names.only(|name| !acl::is_list(name) && !acl::is_nfs4_list(name));
        done(EXTENDED, copy_extended(others, both, to, outcome));
        let (mode, listed) = acl::preserve(source, sink, mode, directory);
        match listed {
            Ok(()) => {}
            Err((what, side, errno)) => done(what, Err((side, errno))),
        }
        let (listed, changed) = set_mode_and_lists(&names, mode, (source, sink), to, outcome);
        done(acl::LIST, listed);
        done("mode", changed);
        let touched = retry(|| rustix::fs::futimens(sink, &times(stat)));
        done("times", touched.map_err(setting));
        problem.map_or(Ok(()), Err)
    }
}
