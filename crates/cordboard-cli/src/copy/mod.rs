//! `cordboard copy SRC… DST`.

mod acl;
mod attributes;
mod batch;
mod case_collisions;
mod chain;
mod dispatch;
mod extended;
mod flights;
mod landing;
mod lease;
mod limits;
mod link;
mod listing;
mod messages;
mod once;
mod one;
mod over;
mod parent;
mod place;
mod pool;
mod sink;
mod sources;
mod spares;
mod tree;
mod verify;
mod written;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cordboard::{Control, Errno, Request, Side, Size};
use rustix::fs::{FileType, Stat};

use crate::endpoint;
use crate::flags::Copy;
use crate::hints::Doing;
use crate::problem::Problem;
use crate::request;
use crate::session::Session;
use crate::signals::{again, go_on};
use crate::stages::{self, Staging};
use crate::stat::kind;
use crate::there::{there, there_for_us};
use batch::Item;
use dispatch::Dispatch;
use messages::Told;
pub use parent::sync_parent;
use place::Place;
use sources::Sources;
use spares::Spares;
use written::Written;

/// What all files of one command have in common.
#[derive(Debug)]
struct Job {
    request: Request,
    recursive: bool,
    preserve: bool,
    append: bool,
    sync: bool,
    control: &'static Control,
    /// What is put into each transfer.
    staging: Staging,
    /// The request was found to be one that is taken up.
    checked: AtomicBool,
    /// Nothing more is to be begun: see [`over`].
    over: AtomicBool,
    /// What was made so far.
    written: Written,
    /// What is copied.
    sources: Sources,
    /// What is closed where no descriptor is left.
    spares: Arc<Spares>,
    /// What a test does at these moments of a file.
    #[cfg(test)]
    fault: Option<fn(Moment, &Path)>,
}

/// When a [fault](Job::fault) may be had.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Opening,
    Settling,
}

#[cfg(test)]
impl Job {
    /// One without any option.
    fn plain(control: &'static Control) -> Job {
        Job {
            request: Request {
                sparse: cordboard::Sparse::Never,
                ..Request::default()
            },
            recursive: false,
            preserve: false,
            append: false,
            sync: false,
            control,
            staging: Staging::default(),
            checked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            written: Written::default(),
            sources: Sources::default(),
            spares: Arc::default(),
            fault: None,
        }
    }
}

/// Runs it.
pub fn run(flags: &Copy, session: &mut Session) {
    session.count_files(flags.recursive || flags.operands().0.len() > 1);
    if let Err(problem) = copy(flags, session) {
        session.none_copied(&problem);
    }
}

fn copy(flags: &Copy, session: &mut Session) -> Result<(), Problem> {
    let (sources, sink) = flags.operands();
    no_other_endpoint(sink)?;
    let sink = &plain(sink, Side::Sink)?;
    let sources = sources.iter().map(|path| match path.as_os_str() {
        // Told of in its turn.
        name if name.is_empty() => Ok(path.clone()),
        _ => plain(path, Side::Source),
    });
    let sources = sources.collect::<Result<Vec<PathBuf>, Problem>>()?;
    let part = flags.range.size.is_some() || flags.range.offset.is_some();
    if part && (sources.len() > 1 || flags.recursive) {
        return Err(Problem::usage(
            "",
            "--size and --offset take one file, not many",
        ));
    }
    let request = request::writing(&flags.range, &flags.common.paths, &flags.writing)?;
    stages::check(&flags.common.stages, &request)?;
    session.verify(flags.verify);
    let many = sources.len() > 1;
    let job = Job {
        request,
        recursive: flags.recursive,
        preserve: flags.preserve,
        append: flags.writing.append,
        sync: flags.writing.sync,
        control: session.control(),
        staging: session.staging().clone(),
        checked: AtomicBool::new(false),
        over: AtomicBool::new(false),
        written: Written::new(many),
        sources: Sources::new(&sources, flags.recursive),
        spares: Arc::default(),
        #[cfg(test)]
        fault: None,
    };
    // Taken for one that is new, a directory would get what is in the sources, and
    // not the sources. What an error means is said when it is opened.
    let found = there(again(|| rustix::fs::stat(sink)));
    // What a signal interrupted has said nothing of the sink.
    go_on()?;
    let found = found.map_err(|errno| unseen(sink, Side::Sink, errno))?;
    let into = found.is_some_and(|stat| kind(&stat) == FileType::Directory);
    if !into && many {
        let shown = sink.to_string_lossy();
        let text = "many files are copied into a directory, which this is not";
        return Err(
            Problem::refused(shown, Side::Sink, Errno::ENOTDIR, text).help("make it first (mkdir)")
        );
    }
    let only = !many && !flags.recursive;
    let slots = match only {
        true => 1,
        false => limits::slots(flags.jobs, flags.recursive),
    };
    let mut dispatch = Dispatch::new(session, job, slots, only);
    let mut taken = BTreeSet::new();
    for source in sources {
        if dispatch.stopped(|_| true) || dispatch.leaves_out() {
            break;
        }
        if source.as_os_str().is_empty() {
            dispatch.problem(Problem::unnamed());
            continue;
        }
        let target = match into {
            true => target(sink, &source),
            false => sink.clone(),
        };
        let again = many && !taken.insert(target.clone());
        // Directories of one name become one, as with cp.
        let meets = match again && flags.recursive {
            true => is_directory(&source).map(|is| !is),
            false => Ok(again),
        };
        let done = match meets {
            Err(problem) => Err(problem),
            Ok(true) => Err(just_copied(&Place::top(&source), &Place::top(&target))),
            Ok(false) => {
                let given = match into {
                    true if target == *sink => Given::Directory,
                    true => Given::Above,
                    false => Given::Name,
                };
                operand(&mut dispatch, source, target, given)
            }
        };
        if let Err(problem) = done {
            dispatch.problem(problem);
        }
    }
    dispatch.drain();
    Ok(())
}

/// What helps whoever gives copy the name of a connection.
const ELSEWHERE: &str = "copy takes files; for other endpoints: cordboard splice";

/// A new file of such a name is hardly what is meant.
fn no_other_endpoint(sink: &Path) -> Result<(), Problem> {
    if !endpoint::is_no_path(sink.as_os_str()) {
        return Ok(());
    }
    let above = sink.parent().filter(|path| !path.as_os_str().is_empty());
    for path in [Some(sink), above].into_iter().flatten() {
        let found = there_for_us(again(|| rustix::fs::lstat(path)));
        go_on()?;
        if (found.map_err(|errno| unseen(sink, Side::Sink, errno))?).is_some() {
            return Ok(());
        }
    }
    let shown = sink.to_string_lossy();
    let text = "it names no file, but another endpoint";
    let help = format!("{ELSEWHERE}; for a file of that name: ./{shown} or file:{shown}");
    Err(Problem::usage(shown, text).on(Side::Sink).help(help))
}

/// Operands are paths; `file:` before one is allowed, as elsewhere.
fn plain(operand: &Path, side: Side) -> Result<PathBuf, Problem> {
    match endpoint::file(operand.as_os_str(), side)? {
        endpoint::Name::Path(path) => Ok(path),
        _ => Ok(operand.to_owned()),
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

fn is_directory(path: &Path) -> Result<bool, Problem> {
    let found = there(again(|| rustix::fs::lstat(path)));
    let found = found.map_err(|errno| unseen(path, Side::Source, errno))?;
    Ok(found.is_some_and(|stat| kind(&stat) == FileType::Directory))
}

/// A look at it has failed.
fn unseen(path: &Path, side: Side, errno: rustix::io::Errno) -> Problem {
    Problem::call(path.to_string_lossy(), side, errno, Doing::Opening)
}

/// Two sources go to one file.
fn just_copied(from: &Place<'_>, to: &Place<'_>) -> Problem {
    let text = format!("just copied: it is not overwritten by {from}");
    Problem::refused(to.shown(), Side::Sink, Errno::EEXIST, text)
        .help("two sources go to this file: copy them one by one, or elsewhere")
}

/// How much of a target was given. A symlink in what was given is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    /// All of it, and it is a directory.
    Directory,
    /// All of it, and it is none, or not there.
    Name,
    /// The directory that it goes into.
    Above,
}

/// One of the sources.
fn operand(
    dispatch: &mut Dispatch<'_>,
    source: PathBuf,
    target: PathBuf,
    given: Given,
) -> Result<(), Problem> {
    let recursive = dispatch.job().recursive;
    let look = if recursive {
        rustix::fs::lstat
    } else {
        rustix::fs::stat
    };
    let stat = again(|| look(&source)).map_err(|errno| {
        let shown = source.to_string_lossy();
        let problem = Problem::call(shown, Side::Source, errno, Doing::Opening);
        match endpoint::parse(source.as_os_str(), Side::Source) {
            Ok(endpoint::Name::Path(_)) => problem,
            _ => problem.help(ELSEWHERE),
        }
    })?;
    match kind(&stat) {
        FileType::RegularFile => {
            let item = Item {
                name: source.into(),
                target: Some(target),
                beneath: recursive && given == Given::Above,
                twin: false,
            };
            dispatch.file(item, || None);
            Ok(())
        }
        FileType::Directory if recursive => tree::copy(dispatch, &source, &target, given),
        FileType::Directory => {
            let shown = source.to_string_lossy();
            let text = "it is a directory";
            Err(Problem::refused(shown, Side::Source, Errno::EISDIR, text)
                .help("to copy it with all that is in it: cordboard copy -r"))
        }
        FileType::Symlink if recursive => {
            let (from, to) = (Place::top(&source), Place::top(&target));
            let mut told = Told::default();
            let done = dispatch.job().link(&from, &to, &mut told);
            let done = done.and_then(|()| match dispatch.job().sync {
                true => sync_parent(&target, None),
                false => Ok(()),
            });
            dispatch.made(done, told)
        }
        FileType::BlockDevice | FileType::CharacterDevice if !recursive => {
            dispatch.job().takes(&source, &stat)?;
            let item = Item {
                name: source.into(),
                target: Some(target),
                beneath: false,
                twin: false,
            };
            dispatch.file(item, || None);
            Ok(())
        }
        // It was followed: a descriptor of a symlink itself, which does not open.
        FileType::Symlink => {
            let shown = source.to_string_lossy();
            let errno = rustix::io::Errno::LOOP;
            Err(endpoint::not_opened(&source, shown, Side::Source, errno))
        }
        other => Err(special(&source, other, recursive)),
    }
}

/// Devices that are read for ever: full, random, urandom, zero
/// (Documentation/admin-guide/devices.txt).
const ENDLESS: [(u32, u32); 4] = [(1, 5), (1, 7), (1, 8), (1, 9)];

impl Job {
    /// Refuses what is no file and cannot be copied all the same. A device that
    /// was given is read, as `cp` does it; one in a tree is not.
    fn takes(&self, path: &Path, stat: &Stat) -> Result<(), Problem> {
        let shown = path.to_string_lossy();
        let refused = |text| Problem::refused(shown.as_ref(), Side::Source, Errno::EINVAL, text);
        let device = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        match kind(stat) {
            FileType::BlockDevice | FileType::CharacterDevice if self.recursive => {
                Err(special(path, kind(stat), true))
            }
            FileType::BlockDevice => Ok(()),
            FileType::CharacterDevice if self.staging.verify => {
                let text = "it is a character device, and cannot be read a second time";
                Err(refused(text).help("leave --verify out"))
            }
            FileType::CharacterDevice
                if self.request.size == Size::Eof && ENDLESS.contains(&device) =>
            {
                Err(refused("it has no end").help("to copy a part of it: --size N"))
            }
            FileType::CharacterDevice => Ok(()),
            other => Err(special(path, other, self.recursive)),
        }
    }
}

/// A source that has no contents of its own to copy.
fn special(path: &Path, kind: FileType, tree: bool) -> Problem {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "no regular file",
    };
    let shown = path.to_string_lossy();
    let device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
    let text = match device {
        true => format!("it is {what}, which copy -r does not take"),
        false => format!("it is {what}, which copy does not take"),
    };
    let help = match kind {
        _ if device && tree => format!("to copy its contents: cordboard copy {shown} DST"),
        FileType::Socket => format!("to read from it: cordboard splice unix:{shown} DST"),
        _ => format!("to read from it: cordboard splice {shown} DST"),
    };
    Problem::refused(shown, Side::Source, Errno::EINVAL, text).help(help)
}
