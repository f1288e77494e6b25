//! `cordboard copy SRC… DST`.

mod attributes;
mod chain;
mod link;
mod one;
mod parent;
mod place;
mod tree;
mod verify;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cordboard::{Errno, Request, Side};
use rustix::fs::{FileType, Stat};

use crate::flags::Copy;
use crate::hints::Doing;
use crate::problem::Problem;
use crate::request;
use crate::session::Session;
use crate::stages;
pub use parent::sync_parent;
use place::Place;

/// What all files of one command have in common.
struct Job<'s> {
    session: &'s mut Session,
    request: Request,
    recursive: bool,
    preserve: bool,
    append: bool,
    sync: bool,
    verify: bool,
    /// There is but one file, so that its size is that of all.
    alone: bool,
    /// The request was found to be one that is taken up.
    checked: bool,
    /// The files written so far, where two sources can meet in one tree.
    written: Option<BTreeSet<(u64, u64)>>,
}

/// Runs it.
pub fn run(flags: &Copy, session: &mut Session) {
    if let Err(problem) = copy(flags, session) {
        session.problem(&problem);
    }
}

fn copy(flags: &Copy, session: &mut Session) -> Result<(), Problem> {
    let sink = &plain(&flags.sink);
    let sources: Vec<PathBuf> = flags.sources.iter().map(|path| plain(path)).collect();
    let part = flags.range.size.is_some() || flags.range.offset.is_some();
    if part && (sources.len() > 1 || flags.recursive) {
        return Err(Problem::usage(
            "",
            "--size and --offset take one file, not many",
        ));
    }
    let request = Request {
        sync: flags.writing.sync,
        ..request::from(
            &flags.range,
            &flags.common.paths,
            flags.writing.sparse.into(),
        )?
    };
    stages::check(&flags.common.stages, &request)?;
    session.verify(flags.verify);
    let mut job = Job {
        session,
        request,
        recursive: flags.recursive,
        preserve: flags.preserve,
        append: flags.writing.append,
        sync: flags.writing.sync,
        verify: flags.verify,
        alone: sources.len() == 1 && !flags.recursive,
        checked: false,
        written: (sources.len() > 1 && flags.recursive).then(BTreeSet::new),
    };
    let into = rustix::fs::stat(sink).is_ok_and(|stat| kind(&stat) == FileType::Directory);
    if !into && sources.len() > 1 {
        let shown = sink.to_string_lossy();
        let text = "many files are copied into a directory, which this is not";
        return Err(
            Problem::refused(shown, Side::Sink, Errno::ENOTDIR, text).help("make it first (mkdir)")
        );
    }
    let mut taken = BTreeSet::new();
    for source in &sources {
        if job.session.stopped() {
            break;
        }
        let target = match into {
            true => target(sink, source),
            false => sink.clone(),
        };
        let again = sources.len() > 1 && !taken.insert(target.clone());
        let done = match again && !(job.recursive && is_directory(source)) {
            true => Err(just_copied(&Place::top(source), &Place::top(&target))),
            // Directories of one name become one, as with cp.
            false => job.operand(source, &target),
        };
        if let Err(problem) = done {
            job.session.problem(&problem);
        }
    }
    Ok(())
}

/// Operands are paths; `file:` before one is allowed, as elsewhere.
fn plain(operand: &Path) -> PathBuf {
    match operand.as_os_str().as_bytes().strip_prefix(b"file:") {
        Some(path) if !path.is_empty() => OsString::from_vec(path.to_vec()).into(),
        _ => operand.to_owned(),
    }
}

/// Where a source goes in a directory. What names no file of its own (`.`,
/// `dir/.`, `..`) means its contents.
fn target(directory: &Path, source: &Path) -> PathBuf {
    let bytes = source.as_os_str().as_bytes();
    match source.file_name() {
        Some(name) if !bytes.ends_with(b"/.") && !bytes.ends_with(b"/./") => directory.join(name),
        _ => directory.to_owned(),
    }
}

fn is_directory(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| kind(&stat) == FileType::Directory)
}

/// Two sources go to one file.
fn just_copied(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("just copied: it is not overwritten by {from}");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("two sources have the same name")
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

impl Job<'_> {
    /// One of the sources.
    fn operand(&mut self, source: &Path, target: &Path) -> Result<(), Problem> {
        let look = if self.recursive {
            rustix::fs::lstat
        } else {
            rustix::fs::stat
        };
        let stat = look(source).map_err(|errno| {
            let shown = source.to_string_lossy();
            let problem = Problem::call(shown, Side::Source, errno, Doing::Opening);
            match crate::endpoint::parse(source.as_os_str(), Side::Source) {
                Ok(crate::endpoint::Name::Path(_)) => problem,
                _ => problem.help("copy takes files; for other endpoints: cordboard splice"),
            }
        })?;
        let (from, to) = (Place::top(source), Place::top(target));
        match kind(&stat) {
            FileType::RegularFile => {
                let fresh = self.file(&from, &to, true)?;
                if fresh && self.sync {
                    sync_parent(target)?;
                }
                Ok(())
            }
            FileType::Directory if self.recursive => tree::copy(self, source, target),
            FileType::Directory => {
                let shown = source.to_string_lossy();
                let text = "it is a directory";
                Err(Problem::refused(shown, Side::Source, Errno::EISDIR, text)
                    .help("to copy it with all that is in it: cordboard copy -r"))
            }
            FileType::Symlink => {
                self.link(&from, &to)?;
                if self.sync {
                    sync_parent(target)?;
                }
                Ok(())
            }
            other => Err(special(source, other)),
        }
    }
}

/// A source that has no contents of its own to copy.
fn special(path: &Path, kind: FileType) -> Problem {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "no regular file",
    };
    let shown = path.to_string_lossy();
    let text = format!("it is {what}, which copy does not take");
    let help = match kind {
        FileType::Socket => format!("to read from it: cordboard splice unix:{shown} DST"),
        _ => format!("to read from it: cordboard splice {shown} DST"),
    };
    Problem::refused(shown, Side::Source, Errno::EINVAL, text).help(help)
}
