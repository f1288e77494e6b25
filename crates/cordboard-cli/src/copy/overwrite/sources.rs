//! The source files of a command that may also be a sink: by another of their
//! names, by an existing symlink, or because the destination contains one of
//! the operands.
//!
//! A sink of the first two kinds has several names, or was reached by a
//! symlink, which is rare. At the first such sink all sources are listed once.
//! A sink of the third kind is an operand, or is below one: each path from the
//! destination to it goes through the operand.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cordboard::{Errno as Named, Side};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::copy::directories::Chain;
use crate::copy::directories::Spares;
use crate::copy::directories::list;
use crate::copy::place::Place;
use crate::directory::DIRECTORY;
use crate::files::if_reachable;
use crate::files::kind;
use crate::files::{Id, id};
use crate::problem::Problem;
use crate::signals::{retry, stop};

/// The sources of a command.
#[derive(Debug, Default)]
pub struct Sources {
    operands: Vec<PathBuf>,
    recursive: bool,
    found: OnceLock<Found>,
    given: OnceLock<BTreeSet<Id>>,
}

/// Files that are copied from.
#[derive(Debug, Default)]
struct Found {
    files: BTreeSet<Id>,
    /// The first one whose lookup failed: any file may be in it.
    failed_lookup: Option<FailedLookup>,
}

/// A path whose lookup failed, and why.
type FailedLookup = (PathBuf, Errno);

impl Sources {
    /// From the operands. A single file is compared with its sink anyway.
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

    /// Refuses a sink that is a source; `other`: it may be one by a hard link
    /// or a symlink.
    pub fn check(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        (stat, other): (&Stat, bool),
        spares: &Arc<Spares>,
    ) -> Result<(), Problem> {
        let sink = id(stat);
        let shown = to.shown();
        let mut is_source = self.is_given(shown.as_ref(), sink)?;
        if other && !is_source {
            let found = self.found(spares);
            is_source = found.files.contains(&sink);
            if let (false, Some(failed_lookup)) = (is_source, &found.failed_lookup) {
                return Err(unknown(shown.as_ref(), failed_lookup));
            }
        }
        if !is_source {
            return Ok(());
        }
        let text = format!("is also a file of the source, which {from} would overwrite");
        Err(Problem::refused(shown, Side::Sink, Named::EINVAL, text)
            .help("nothing was written: copy it elsewhere, or remove this name first"))
    }

    /// Refuses a directory of the destination that is one of the operands, or
    /// is `walked`: the current directory of the source, or one above it.
    pub fn check_directory(
        &self,
        (from, walked): (&Path, bool),
        to: &Path,
        there: Id,
    ) -> Result<(), Problem> {
        if !walked && !self.is_given(to.as_os_str(), there)? {
            return Ok(());
        }
        let from = from.display();
        let text = format!("is also a directory of the source, into which {from} would be copied");
        let shown = to.to_string_lossy();
        Err(Problem::refused(shown, Side::Sink, Named::EINVAL, text)
            .help("nothing was written there: copy it elsewhere first"))
    }

    /// Whether a sink, which is shown so, is one of the operands.
    fn is_given(&self, shown: &OsStr, sink: Id) -> Result<bool, Problem> {
        if let Some(given) = self.given.get() {
            return Ok(given.contains(&sink));
        }
        let (mut given, mut failed_lookup) = (BTreeSet::new(), None);
        for operand in &self.operands {
            match if_reachable(self.lookup(operand)) {
                // An operand that does not exist cannot be overwritten.
                Ok(stat) => given.extend(stat.as_ref().map(id)),
                Err(errno) => failed_lookup = failed_lookup.or(Some((operand.clone(), errno))),
            }
        }
        match failed_lookup {
            None => Ok(self.given.get_or_init(|| given).contains(&sink)),
            Some(_) if given.contains(&sink) => Ok(true),
            // The next lookup may succeed.
            Some(failed_lookup) => Err(unknown(shown, &failed_lookup)),
        }
    }

    /// Looks an operand up as the walk does.
    fn lookup(&self, operand: &Path) -> rustix::io::Result<Stat> {
        match self.recursive {
            true => retry(|| rustix::fs::lstat(operand)),
            false => retry(|| rustix::fs::stat(operand)),
        }
    }

    fn found(&self, spares: &Arc<Spares>) -> &Found {
        self.found.get_or_init(|| {
            let mut found = Found::default();
            for operand in &self.operands {
                match if_reachable(self.lookup(operand)) {
                    Ok(Some(stat)) if kind(&stat) == FileType::RegularFile => {
                        found.files.insert(id(&stat));
                    }
                    Ok(Some(stat)) if self.recursive && kind(&stat) == FileType::Directory => {
                        add_tree(operand, spares, &mut found);
                    }
                    // Any problem is reported when the operand is copied.
                    Ok(_) => {}
                    Err(errno) => found.failed_lookup(operand, errno),
                }
            }
            found
        })
    }
}

impl Found {
    fn failed_lookup(&mut self, path: &Path, errno: Errno) {
        self.failed_lookup
            .get_or_insert_with(|| (path.to_owned(), errno));
    }
}

/// A sink that may be a source.
fn unknown(shown: &OsStr, (source, errno): &FailedLookup) -> Problem {
    let (source, errno) = (source.display(), Named::from(*errno));
    let text = format!("may also be a file of the source: {source}: {errno} looking it up");
    Problem::refused(shown.to_string_lossy(), Side::Sink, errno, text)
        .help("nothing was written to it: copy it again")
}

/// Adds the files of a tree that have several names. A directory that cannot be
/// read cannot be copied either.
fn add_tree(top: &Path, spares: &Arc<Spares>, found: &mut Found) {
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
        if let Some(name) = next.take() {
            match if_reachable(open(&name)) {
                Ok(Some((directory, stat))) => {
                    let mut inside = Vec::new();
                    let listed = directories(directory.as_fd(), &mut buffer, found, &mut inside);
                    if let Err(errno) = listed {
                        found.failed_lookup(top, errno);
                    }
                    chain.enter(&name, directory, id(&stat));
                    levels.push(inside.into_iter());
                }
                Ok(None) => {}
                Err(errno) => found.failed_lookup(top, errno),
            }
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
    let fd = spares.retry_without_spares(|| retry(open))?;
    let stat = retry(|| rustix::fs::fstat(&fd))?;
    Ok((fd, stat))
}

/// Lists the subdirectories of a directory, and adds its files that have
/// several names, up to the first error.
fn directories(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    found: &mut Found,
    inside: &mut Vec<CString>,
) -> rustix::io::Result<()> {
    list(
        fd,
        buffer,
        |errno| errno,
        |name, file_type| {
            let look = matches!(file_type, FileType::RegularFile | FileType::Unknown);
            let stat = match look {
                true => {
                    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
                    if_reachable(Place::below(fd, Path::new(""), name).stat())?
                }
                false => None,
            };
            match stat.as_ref().map_or(file_type, kind) {
                FileType::Directory => inside.push(name.to_owned()),
                FileType::RegularFile => {
                    found
                        .files
                        .extend(stat.filter(|stat| stat.st_nlink > 1).map(|stat| id(&stat)));
                }
                _ => {}
            }
            Ok(())
        },
    )
}
