//! `-p`: owner, extended attributes, access control lists, mode and times, in an
//! order in which none undoes another: a change of owner removes
//! `security.capability`, and a change of mode alters the access control list.

use std::os::fd::BorrowedFd;

use cordboard::Side;
use rustix::fs::{FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

use super::extended::{Node, Passed, pass_on};
use super::messages::{Said, Told};
use super::place::Place;
use super::{Job, acl, kind};
use crate::problem::Problem;
use crate::signals::again;
use crate::stat::times;

/// Owner and group of a file.
pub fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )
}

/// The failure to set one of them.
pub fn refused(to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} setting the {what}; its contents are complete");
    Problem::refused(to.shown(), Side::Sink, errno, text)
}

/// The failure to read one of them.
fn unread(from: &Place<'_>, to: &Place<'_>, what: &str, errno: Errno) -> Problem {
    let errno = cordboard::Errno::from(errno);
    let text = format!("{errno} reading the {what}, which {to} lacks; its contents are complete");
    Problem::refused(from.shown(), Side::Source, errno, text)
}

impl Job {
    /// Gives `sink` the attributes of `source`, whose `stat` is from before it
    /// was read.
    pub fn keep(
        &self,
        (from, source): (&Place<'_>, BorrowedFd<'_>),
        (to, sink): (&Place<'_>, BorrowedFd<'_>),
        stat: &Stat,
        told: &mut Told,
    ) -> Result<(), Problem> {
        // What one of them is refused takes nothing from the others; the first
        // is told.
        let mut problem = None;
        let mut done = |what: &str, done: Passed| {
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
        if let Err(errno) = again(|| rustix::fs::fchown(sink, uid, gid)) {
            // A group of one's own can be set. What runs as its owner must then
            // not run as another.
            let _ = again(|| rustix::fs::fchown(sink, None, gid));
            let special = mode & !0o777;
            mode &= 0o777;
            match errno {
                // Only root gives files away (EPERM), and only to those whom its
                // user namespace knows (EINVAL, user_namespaces(7)).
                Errno::PERM | Errno::INVAL => {
                    told.line(Said::Unkept);
                    if special != 0 {
                        told.line(Said::Unkept);
                    }
                }
                errno => done("owner", Err(setting(errno))),
            }
        }
        // Those of users while it may be written to, which its mode may forbid.
        let (read, set) = (Node::Open(source), Node::Open(sink));
        done("extended attributes", pass_on(read, set, to, told));
        let directory = kind(stat) == FileType::Directory;
        let (mode, listed) = acl::keep(source, sink, mode, directory);
        match listed {
            Ok(()) => {}
            Err((what, side, errno)) => done(what, Err((side, errno))),
        }
        let changed = again(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(mode)));
        done("mode", changed.map_err(setting));
        let touched = again(|| rustix::fs::futimens(sink, &times(stat)));
        done("times", touched.map_err(setting));
        problem.map_or(Ok(()), Err)
    }
}
