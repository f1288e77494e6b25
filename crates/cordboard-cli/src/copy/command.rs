//! `cordboard copy SRC… DST`: its operands, one after the other.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use cordboard::{Errno, Side};
use rustix::fs::FileType;

use super::job::Job;
use super::overwrite::{Sources, Written};
use super::parallel::{Dispatch, Item, slots};
use super::refusals::{just_copied, not_copyable};
use super::tree::{self, Given};
use crate::copy::place::Place;
use crate::directory::{sync_parent, without_slash};
use crate::files::{if_exists, if_reachable, kind};
use crate::flags::{Copy, Stages};
use crate::problem::{Action, Problem};
use crate::session::Session;
use crate::signals::{self, check_stop, retry};
use crate::stages;
use crate::{endpoint, request};

/// Runs the command.
pub fn run(flags: &Copy, session: &mut Session) {
    if let Err(problem) = copy(flags, session) {
        session.none_copied(&problem);
    }
}

/// Returns the hint for a level that was given as a word of its own, and is one of the operands.
fn level_hint(stages: &Stages, sources: &[PathBuf], sink: &Path) -> Option<String> {
    stages.zstd?;
    let level_of = |path: &Path| {
        let level: i32 = path.to_str()?.parse().ok()?;
        let is_missing = if_exists(rustix::fs::lstat(path)).is_ok_and(|found| found.is_none());
        ((-7..=22).contains(&level) && is_missing).then_some(level)
    };
    let mut operands = sources.iter().map(PathBuf::as_path).chain([sink]);
    let level = operands.find_map(level_of)?;
    Some(format!("for a level, use --zstd={level}"))
}

fn copy(flags: &Copy, session: &mut Session) -> Result<(), Problem> {
    let (sources, sink) = flags.operands();
    check_is_file(sink)?;
    let sink = &strip_scheme(sink, Side::Sink)?;
    let sources = sources.iter().map(|path| match path.as_os_str() {
        // Reported when the operand is copied.
        name if name.is_empty() => Ok(path.clone()),
        _ => strip_scheme(path, Side::Source),
    });
    let sources = sources.collect::<Result<Vec<PathBuf>, Problem>>()?;
    let several = sources.len() > 1;
    let (sources, repeated) = without_repeated(sources);
    let part = flags.range.size.is_some() || flags.range.offset.is_some();
    if (part || flags.writing.sink_offset.is_some()) && (several || flags.recursive) {
        let text = "--size, --offset and --sink-offset need a single file";
        return Err(Problem::usage("", text));
    }
    let request = request::for_writing(&flags.range, &flags.common.paths, &flags.writing)?;
    stages::check(&flags.common.stages, &request)?;
    session.verify(flags.verify);
    let many = sources.len() > 1;
    let only = !many && !flags.recursive;
    let slots = match only {
        true => 1,
        false => slots(flags.jobs, flags.recursive, &flags.common.stages),
    };
    let job = Job {
        request,
        destination: sink.clone(),
        recursive: flags.recursive,
        preserve: flags.preserve,
        append: flags.writing.append,
        sync: flags.writing.sync,
        // A signal does not interrupt a call of another thread.
        control: match slots {
            1 => session.control(),
            _ => signals::polled(),
        },
        staging: session.staging().clone(),
        checked: AtomicBool::new(false),
        aborted: AtomicBool::new(false),
        read_back: AtomicU64::new(0),
        written: Written::new(many),
        sources: Sources::new(&sources, flags.recursive),
        own_socket: session.own_socket(),
        spares: Arc::default(),
        #[cfg(test)]
        fault: None,
    };
    // Any error other than a missing sink ends the command: an existing
    // directory, taken for a new name, would get the contents of a tree
    // directly.
    let found = if_exists(retry(|| rustix::fs::stat(sink)));
    // An interrupted call says nothing about the sink.
    check_stop()?;
    let found = found.map_err(|errno| lookup_failed(sink, Side::Sink, errno))?;
    let into = found.is_some_and(|stat| kind(&stat) == FileType::Directory);
    if !into && several {
        let shown = sink.to_string_lossy();
        let text = "is not a directory, but there are several sources";
        let help = level_hint(&flags.common.stages, &sources, sink);
        let help = help.unwrap_or_else(|| "create it first (mkdir)".to_owned());
        return Err(Problem::refused(shown, Side::Sink, Errno::ENOTDIR, text).help(help));
    }
    for source in repeated {
        let shown = source.to_string_lossy();
        let text = "warning: named more than once, and copied once";
        session.print(&format_args!("cordboard: {shown}: {text}"));
    }
    if !only {
        session.count_operands(sources.clone(), flags.recursive, None);
    }
    let mut dispatch = Dispatch::new(session, job, slots, only);
    copy_each(&mut dispatch, sources, sink, into);
    dispatch.drain();
    Ok(())
}

/// Copies the sources, one after the other. `into`: the sink is a directory.
fn copy_each(dispatch: &mut Dispatch<'_>, sources: Vec<PathBuf>, sink: &Path, into: bool) {
    let many = sources.len() > 1;
    let recursive = dispatch.job().recursive;
    let mut taken = BTreeSet::new();
    for source in sources {
        if dispatch.stopped(|_| true) || dispatch.skips_rest() {
            break;
        }
        if source.as_os_str().is_empty() {
            dispatch.problem(Problem::empty_name());
            continue;
        }
        let target = match into {
            true => target(sink, &source),
            false => sink.to_owned(),
        };
        let again = many && !taken.insert(target.clone());
        // Directories of one name are merged, as by cp.
        let meets = match again && recursive {
            true => is_directory(&source).map(|is| !is),
            false => Ok(again),
        };
        let done = match meets {
            Err(problem) => Err(problem),
            Ok(true) => Err(just_copied(&Place::top(&source), &Place::top(&target))),
            Ok(false) => {
                let given = match into {
                    true if target == sink => Given::Directory,
                    true => Given::Above,
                    false => Given::Name,
                };
                let done = operand(dispatch, source, target.clone(), given);
                done.map_err(|problem| dispatch.job().of_one_part(problem, &Place::top(&target)))
            }
        };
        if let Err(problem) = done {
            dispatch.problem(problem);
        }
    }
}

/// Omits operands that were named before, as cp does. Also returns these.
fn without_repeated(sources: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut named = BTreeSet::new();
    sources.into_iter().partition(|source| {
        let name = without_slash(source);
        // A slash behind a symlink names the directory that it points to.
        let followed = name.as_os_str() != source.as_os_str()
            && retry(|| rustix::fs::lstat(name)).is_ok_and(|it| kind(&it) == FileType::Symlink);
        // Each empty name is reported.
        source.as_os_str().is_empty() || named.insert((name.as_os_str().to_owned(), followed))
    })
}

/// The hint for an operand that names a connection.
const ELSEWHERE: &str = "copy takes only files: for other endpoints, use cordboard splice";

/// Refuses the name of an endpoint that is not a file, which is probably not
/// meant as the name of a new file.
fn check_is_file(sink: &Path) -> Result<(), Problem> {
    if !endpoint::names_other_endpoint(sink.as_os_str()) {
        return Ok(());
    }
    let above = sink.parent().filter(|path| !path.as_os_str().is_empty());
    for path in [Some(sink), above].into_iter().flatten() {
        let found = if_reachable(retry(|| rustix::fs::lstat(path)));
        check_stop()?;
        if (found.map_err(|errno| lookup_failed(sink, Side::Sink, errno))?).is_some() {
            return Ok(());
        }
    }
    let shown = sink.to_string_lossy();
    let text = "names an endpoint that is not a file";
    let help = format!("{ELSEWHERE}; for a file of that name, use ./{shown} or file:{shown}");
    Err(Problem::usage(shown, text).on(Side::Sink).help(help))
}

/// Operands are paths, with or without `file:`.
fn strip_scheme(operand: &Path, side: Side) -> Result<PathBuf, Problem> {
    match endpoint::file(operand.as_os_str(), side)? {
        endpoint::Name::Path(path) => Ok(path),
        _ => Ok(operand.to_owned()),
    }
}

/// Returns the target of a source in a directory. A source without a name of
/// its own (`.`, `dir/.`, `..`) stands for its contents.
fn target(directory: &Path, source: &Path) -> PathBuf {
    let bytes = without_slash(source).as_os_str().as_bytes();
    match source.file_name() {
        Some(name) if !bytes.ends_with(b"/.") => directory.join(name),
        _ => directory.to_owned(),
    }
}

fn is_directory(path: &Path) -> Result<bool, Problem> {
    let found = if_exists(retry(|| rustix::fs::lstat(path)));
    let found = found.map_err(|errno| lookup_failed(path, Side::Source, errno))?;
    Ok(found.is_some_and(|stat| kind(&stat) == FileType::Directory))
}

/// A lookup has failed.
fn lookup_failed(path: &Path, side: Side, errno: rustix::io::Errno) -> Problem {
    Problem::call(path.to_string_lossy(), side, errno, Action::Open)
}

/// Copies one of the sources.
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
    let stat = retry(|| look(&source)).map_err(|errno| {
        let shown = source.to_string_lossy();
        let problem = Problem::call(shown, Side::Source, errno, Action::Open);
        match endpoint::parse(source.as_os_str(), Side::Source) {
            Ok(endpoint::Name::Path(_)) => problem,
            _ => problem.help(ELSEWHERE),
        }
    })?;
    match kind(&stat) {
        FileType::RegularFile => {
            // By a symlink, a later operand may have the same sink: each is copied in its turn.
            let is_symlink = |stat| kind(&stat) == FileType::Symlink;
            let beneath = recursive && given == Given::Above;
            let in_turn = !beneath && retry(|| rustix::fs::lstat(&target)).is_ok_and(is_symlink);
            let item = Item {
                name: source.into(),
                target: Some(target),
                beneath,
                collides: false,
            };
            if in_turn {
                dispatch.drain();
            }
            dispatch.file(item, || None);
            if in_turn {
                dispatch.drain();
            }
            Ok(())
        }
        FileType::Directory if recursive => tree::copy(dispatch, &source, &target, given),
        FileType::Directory => {
            let shown = source.to_string_lossy();
            let text = "is a directory";
            Err(Problem::refused(shown, Side::Source, Errno::EISDIR, text)
                .help("to copy it with its contents, use cordboard copy -r"))
        }
        FileType::Symlink if recursive => {
            let sync = dispatch.job().sync;
            let places = (&Place::top(&source), &Place::top(&target));
            dispatch.symlink(places, || match sync {
                true => sync_parent(&target, None),
                false => Ok(()),
            });
            Ok(())
        }
        FileType::BlockDevice | FileType::CharacterDevice if !recursive => {
            dispatch.job().accepts(&source, &stat)?;
            let item = Item {
                name: source.into(),
                target: Some(target),
                beneath: false,
                collides: false,
            };
            dispatch.file(item, || None);
            Ok(())
        }
        // The lookup has followed symlinks: it is a descriptor of a symlink
        // itself, which cannot be opened.
        FileType::Symlink => {
            let shown = source.to_string_lossy();
            let errno = rustix::io::Errno::LOOP;
            Err(endpoint::open_problem(&source, shown, Side::Source, errno))
        }
        other => Err(not_copyable(&source, other, recursive)),
    }
}
