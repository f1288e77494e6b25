//! The files that one command copies from, as far as one of them may be a sink
//! too: by another of its names, by a symlink that was there, or because the
//! destination has one of the operands in it.
//!
//! A sink of the first two kinds has several names, or was reached by a symlink,
//! which is rare. At the first such sink all sources are looked at once. A sink of
//! the third kind is an operand, or is below one: each path from the destination
//! to it goes through the operand.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cordboard::{Errno, Side};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use super::chain::{Chain, Id, id};
use super::kind;
use super::listing::list;
use super::parent::DIRECTORY;
use super::place::Place;
use super::spares::Spares;
use crate::problem::Problem;
use crate::signals::{again, stop};

/// The sources of a command.
#[derive(Debug, Default)]
pub struct Sources {
    operands: Vec<PathBuf>,
    recursive: bool,
    found: OnceLock<BTreeSet<Id>>,
    given: OnceLock<BTreeSet<Id>>,
}

impl Sources {
    /// These. A single file is compared with its sink anyway.
    pub fn new(operands: &[PathBuf], recursive: bool) -> Sources {
        Sources {
            operands: match operands {
                [_] if !recursive => Vec::new(),
                operands => operands.to_vec(),
            },
            recursive,
            found: OnceLock::new(),
            given: OnceLock::new(),
        }
    }

    /// Refuses a sink that is one of them; `other`: it may be so by a hard link
    /// or a symlink.
    pub fn admit(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        (stat, other): (&Stat, bool),
        spares: &Arc<Spares>,
    ) -> Result<(), Problem> {
        let sink = id(stat);
        let is_source =
            self.given().contains(&sink) || (other && self.found(spares).contains(&sink));
        if !is_source {
            return Ok(());
        }
        let text = format!("it is a file of the source too, which {from} would overwrite");
        Err(
            Problem::refused(to.shown(), Side::Sink, Errno::EINVAL, text)
                .help("nothing was written: copy it elsewhere, or remove this name first"),
        )
    }

    /// Refuses a directory of the destination that is one of the operands.
    pub fn admit_directory(&self, from: &Path, to: &Path, there: Id) -> Result<(), Problem> {
        if !self.given().contains(&there) {
            return Ok(());
        }
        let from = from.display();
        let text = format!("it is a directory of the source too, into which {from} would go");
        let shown = to.to_string_lossy();
        Err(Problem::refused(shown, Side::Sink, Errno::EINVAL, text)
            .help("nothing was written there: copy it elsewhere first"))
    }

    /// The operands themselves.
    fn given(&self) -> &BTreeSet<Id> {
        self.given.get_or_init(|| {
            let looks = self.operands.iter().filter_map(|path| self.look(path).ok());
            looks.map(|stat| id(&stat)).collect()
        })
    }

    /// As the walk looks at an operand.
    fn look(&self, operand: &Path) -> rustix::io::Result<Stat> {
        match self.recursive {
            true => again(|| rustix::fs::lstat(operand)),
            false => again(|| rustix::fs::stat(operand)),
        }
    }

    fn found(&self, spares: &Arc<Spares>) -> &BTreeSet<Id> {
        self.found.get_or_init(|| {
            let mut found = BTreeSet::new();
            for operand in &self.operands {
                match self.look(operand) {
                    Ok(stat) if kind(&stat) == FileType::RegularFile => {
                        found.insert(id(&stat));
                    }
                    Ok(stat) if self.recursive && kind(&stat) == FileType::Directory => {
                        below(operand, spares, &mut found);
                    }
                    // What is wrong with it is told when it has its turn.
                    _ => {}
                }
            }
            found
        })
    }
}

/// Adds the files of a tree that have several names. A directory that cannot be
/// read cannot be copied either.
fn below(top: &Path, spares: &Arc<Spares>, found: &mut BTreeSet<Id>) {
    let mut chain = Chain::new(Arc::clone(spares));
    let mut levels: Vec<std::vec::IntoIter<CString>> = Vec::new();
    let mut buffer = vec![MaybeUninit::uninit(); 1 << 15];
    let mut next = Some(top.to_owned());
    while stop().is_none() {
        let above = match levels.is_empty() {
            true => Ok(CWD),
            false => chain.here(),
        };
        let open = |name: &Path| open(above?, name, spares);
        if let Some(name) = next.take()
            && let Ok((directory, stat)) = open(&name)
        {
            let inside = directories(directory.as_fd(), &mut buffer, found);
            chain.enter(&name, directory, id(&stat));
            levels.push(inside.into_iter());
        }
        match levels.last_mut().map(Iterator::next) {
            Some(Some(name)) => next = Some(OsStr::from_bytes(name.to_bytes()).into()),
            Some(None) => {
                levels.pop();
                chain.leave();
            }
            None => return,
        }
    }
}

fn open(
    above: BorrowedFd<'_>,
    name: &Path,
    spares: &Spares,
) -> rustix::io::Result<(OwnedFd, Stat)> {
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let open = || rustix::fs::openat(above, name, flags, Mode::empty());
    let fd = spares.relieve(|| again(open))?;
    let stat = again(|| rustix::fs::fstat(&fd))?;
    Ok((fd, stat))
}

/// The names of a directory's directories. Its files that have several names are
/// added.
fn directories(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    found: &mut BTreeSet<Id>,
) -> Vec<CString> {
    let mut inside = Vec::new();
    // Of one that cannot be listed, what was found counts.
    let _ = list(fd, buffer, drop, |name, file_type| {
        let look = matches!(file_type, FileType::RegularFile | FileType::Unknown);
        let stat = match look {
            true => {
                let name = Path::new(OsStr::from_bytes(name.to_bytes()));
                Place::below(fd, Path::new(""), name).stat().ok()
            }
            false => None,
        };
        match stat.as_ref().map_or(file_type, kind) {
            FileType::Directory => inside.push(name.to_owned()),
            FileType::RegularFile => {
                found.extend(stat.filter(|stat| stat.st_nlink > 1).map(|stat| id(&stat)));
            }
            _ => {}
        }
        Ok(())
    });
    inside
}
