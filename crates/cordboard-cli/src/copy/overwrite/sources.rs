//! The source files of a command that may also be a sink: by another of their
//! names, by an existing symlink, because the destination contains one of the
//! operands, or by mounts.
//!
//! A sink of the first two kinds has several names, or was reached by a
//! symlink, which is rare. At the first such sink all sources are listed once.
//! A sink of the third kind is an operand, or is below one: each path from the
//! destination to it goes through the operand. A sink of the fourth kind is at
//! a [meeting](super::mounts), or below one. If these are unknown, all sources
//! are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cordboard::{Errno as Named, Side};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::mounts::{Meetings, Mounts};
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
    /// Those that can be a sink by another name, and all.
    found: [OnceLock<Found>; 2],
    given: OnceLock<BTreeSet<Id>>,
    /// `None`: unknown.
    mounts: OnceLock<Option<Mounts>>,
    met: Mutex<Met>,
}

/// What mounts show below a source and below a target.
#[derive(Debug, Default)]
struct Met {
    /// With the operands that contain it.
    places: BTreeMap<Id, BTreeSet<PathBuf>>,
    /// Of one of the targets, they could not be found.
    unknown: bool,
}

/// Files that are copied from.
#[derive(Debug, Default)]
struct Found {
    /// All, and not only files with several names, and operands.
    all: bool,
    files: BTreeSet<Id>,
    directories: BTreeSet<Id>,
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
            ..Sources::default()
        }
    }

    /// Finds what mounts show below a source and below the target of this
    /// operand. Called before anything is written there. Returns whether files
    /// below the target have several names by mounts; `None`: unknown.
    pub fn meet(&self, from: &Path, to: &Path) -> Option<bool> {
        let mounts = self.mounts.get_or_init(|| Mounts::new(&self.operands));
        let found = mounts.as_ref().and_then(|all| all.meetings(from, to));
        let mut met = self.met();
        let Some(Meetings { sources, within }) = found else {
            met.unknown = true;
            return None;
        };
        for (id, operand) in sources {
            met.places.entry(id).or_default().insert(operand);
        }
        Some(within)
    }

    /// Whether a mount shows this directory below this operand.
    pub fn is_met_in(&self, operand: &Path, there: Id) -> bool {
        let met = self.met();
        met.places
            .get(&there)
            .is_some_and(|operands| operands.contains(operand))
    }

    /// Whether a mount shows this sink below a source; `None`: unknown.
    fn is_met(&self, sink: Id) -> Option<bool> {
        let met = self.met();
        let known = met.places.contains_key(&sink);
        (known || !met.unknown).then_some(known)
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
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
        let met = self.is_met(sink);
        let mut is_source = met == Some(true) || self.is_given(shown.as_ref(), sink)?;
        if (other || met.is_none()) && !is_source {
            let found = self.found(met.is_none(), spares);
            is_source = found.files.contains(&sink);
            if let (false, Some(failed_lookup)) = (is_source, &found.failed_lookup) {
                return Err(unknown(shown.as_ref(), failed_lookup));
            }
        }
        if !is_source {
            return Ok(());
        }
        let text = format!("is also a file of the source, which {from} would overwrite");
        let help = match met {
            Some(true) => "nothing was written: copy it elsewhere, or unmount it first",
            _ => "nothing was written: copy it elsewhere, or remove this name first",
        };
        Err(Problem::refused(shown, Side::Sink, Named::EINVAL, text).help(help))
    }

    /// Refuses a directory of the destination that is one of the operands, that
    /// a mount shows below a source, or that is `walked`: the current directory
    /// of the source, or one above it.
    pub fn check_directory(
        &self,
        (from, walked): (&Path, bool),
        to: &Path,
        there: Id,
        spares: &Arc<Spares>,
    ) -> Result<(), Problem> {
        let met = self.is_met(there);
        let mut is_source = walked || met == Some(true) || self.is_given(to.as_os_str(), there)?;
        if met.is_none() && !is_source {
            let found = self.found(true, spares);
            is_source = found.directories.contains(&there);
            if let (false, Some(failed_lookup)) = (is_source, &found.failed_lookup) {
                return Err(unknown(to.as_os_str(), failed_lookup));
            }
        }
        if !is_source {
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

    fn found(&self, all: bool, spares: &Arc<Spares>) -> &Found {
        self.found[usize::from(all)].get_or_init(|| {
            let mut found = Found {
                all,
                ..Found::default()
            };
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

/// Adds the files of a tree, or those that have several names, and its
/// directories. A directory that cannot be read cannot be copied either.
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
                    if found.all {
                        found.directories.insert(id(&stat));
                    }
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
    let stat = retry(|| cordboard::fstat(&fd))?;
    Ok((fd, stat))
}

/// Lists the subdirectories of a directory, and adds its files, or those that
/// have several names, up to the first error.
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
                    let added = stat.filter(|stat| found.all || stat.st_nlink > 1);
                    found.files.extend(added.map(|stat| id(&stat)));
                }
                _ => {}
            }
            Ok(())
        },
    )
}
