//! What is examined before the first endpoint is opened: a command that is refused afterwards
//! loses the bytes that the peer of its source has sent by then, and the reader of its sink sees
//! an empty stream. Nothing is created, connected to or waited for.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cordboard::plan::plan;
use cordboard::{Refusal, Request, Side};
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use super::name::Name;
use super::open::{check_appendable, check_has_offsets, look_up, sink, sink_operand};
use super::opened::Existing;
use super::preview::{Preview, StandIn, opening_does_something, preview, resolve_symlinks};
use super::sockets::Operand;
use super::standard::open_problem;
use crate::files::{check_access, directory_of, kind};
use crate::problem::{Action, Problem, operand_of, request_refused};
use crate::signals::retry;

/// An endpoint that is not open yet, and its name for messages.
pub type End<'a> = (&'a Name, &'a str);

/// Refuses what is known to fail, if opening one of the endpoints has an effect on a peer or on a
/// device. `refuse` does the same for the descriptors that stand for the sources and the sinks.
pub fn examine(
    (sources, sinks): (&[End<'_>], &[End<'_>]),
    existing: Existing,
    request: &Request,
    refuse: impl FnOnce(&[Preview], &[Preview]) -> Result<(), Problem>,
) -> Result<(), Problem> {
    if !(sources.iter().chain(sinks)).any(|(name, _)| opening_has_effects(name)) {
        return Ok(());
    }
    let stand_in =
        |(name, shown): End<'_>, side| preview(name, shown, side, (existing, StandIn::InMemory));
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for source in sources {
        let (shown, side) = (source.1, Side::Source);
        look_up(source.0, Operand { shown, side })?;
        match (stand_in(*source, side), source.0) {
            (Ok(preview), _) => from.push(preview),
            // The open reports it.
            (Err(_), Name::Path(_) | Name::Standard | Name::Fd(_)) => return Ok(()),
            (Err(_), _) => {}
        }
    }
    for sink in sinks {
        examine_sink(sink.0, sink.1, existing)?;
        match (stand_in(*sink, Side::Sink), sink.0) {
            (Ok(preview), _) => {
                preview.check_sparse(request)?;
                to.push(preview);
            }
            (Err(problem), Name::Path(path)) if fails_to_open(path, &problem) => {
                return Err(problem);
            }
            (Err(_), _) => {}
        }
    }
    if from.len() < sources.len() || to.len() < sinks.len() {
        return Ok(());
    }
    // The file in memory has another identity than the file that it stands for.
    for (index, (name, shown)) in sinks.iter().enumerate() {
        let others = to.iter().enumerate().filter(|(other, _)| *other != index);
        let mut others = from.iter().chain(others.map(|(_, other)| other));
        if to[index].is_stand_in() && others.any(|other| other.id() == to[index].id()) {
            match (
                preview(name, shown, Side::Sink, (existing, StandIn::Opened)),
                name,
            ) {
                (Ok(opened), _) => to[index] = opened,
                (Err(problem), Name::Path(path)) if fails_to_open(path, &problem) => {
                    return Err(problem);
                }
                (Err(_), _) => return Ok(()),
            }
        }
    }
    match from.iter().chain(&to).all(Preview::is_open) {
        true => refuse(&from, &to),
        false => by_facts(&from, &to, request),
    }
}

/// Whether opening it connects to a peer, waits for one or wakes it, or has an effect on a device.
fn opening_has_effects(name: &Name) -> bool {
    match name {
        Name::Standard | Name::Fd(_) => false,
        Name::Path(path) => retry(|| rustix::fs::stat(path))
            .is_ok_and(|stat| kind(&stat) == FileType::Fifo || opening_does_something(&stat)),
        _ => true,
    }
}

/// Whether the open of an existing sink fails with this problem as well. Other errors may be
/// temporary, or those of an open that does not wait (`EAGAIN`: a lease).
fn fails_to_open(path: &Path, problem: &Problem) -> bool {
    let lasts = [
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::TXTBSY,
        Errno::LOOP,
    ];
    (problem.errno).is_some_and(|errno| lasts.iter().any(|its| errno == (*its).into()))
        && retry(|| rustix::fs::stat(path)).is_ok()
}

/// Refuses what the facts exclude: devices are not opened. Whether such a device can seek, and
/// what it needs for direct I/O, is unknown.
fn by_facts(sources: &[Preview], sinks: &[Preview], request: &Request) -> Result<(), Problem> {
    for source in sources {
        for sink in sinks {
            let Err(failure) = plan(&source.endpoint()?, &sink.endpoint()?, request) else {
                continue;
            };
            let unknown = |refusal: &Refusal| {
                matches!(
                    refusal,
                    Refusal::NotSeekable { .. } | Refusal::NoPath { .. }
                )
            };
            if !failure.refusal.as_ref().is_some_and(unknown) {
                let operand = operand_of(failure.report.failed, &source.shown, &sink.shown);
                return Err(request_refused(operand, &failure));
            }
        }
    }
    Ok(())
}

/// Refuses an offset of a source that is known to have none, before it is waited for. The library
/// refuses the others.
pub fn check_source_offset(name: &Name, shown: &str, offset: Option<u64>) -> Result<(), Problem> {
    let side = Side::Source;
    offset.map_or(Ok(()), |_| check_has_offsets(name, Operand { shown, side }))
}

/// Refuses a sink that cannot be opened, as far as that is known without opening it.
fn examine_sink(name: &Name, shown: &str, existing: Existing) -> Result<(), Problem> {
    let operand = sink_operand(name, shown, existing)?;
    match name {
        Name::Path(path) => examine_path(path, operand, existing),
        // It is open already.
        Name::Standard | Name::Fd(_) => sink(name, shown, existing).map(drop),
        other => look_up(other, operand),
    }
}

/// Whether open(2) refuses to write to this file except at its end (`may_open`, fs/namei.c).
/// access(2) does not tell.
fn only_appends(path: &Path, stat: &Stat) -> bool {
    let query = || statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    kind(stat) == FileType::RegularFile
        && retry(query).is_ok_and(|about| about.stx_attributes.contains(StatxAttributes::APPEND))
}

fn examine_path(path: &Path, operand: Operand<'_>, existing: Existing) -> Result<(), Problem> {
    let problem = |errno| operand.problem(errno, Action::Open);
    let is_directory = |stat: &Stat| kind(stat) == FileType::Directory;
    match retry(|| rustix::fs::stat(path)) {
        Ok(stat) if is_directory(&stat) => Err(problem(Errno::ISDIR)),
        // open(2): a socket is not opened by its path.
        Ok(stat) if kind(&stat) == FileType::Socket => Err(problem(Errno::NXIO)),
        Ok(stat) => {
            if existing == Existing::Append {
                check_appendable(&stat, operand.shown)?;
            }
            check_access(path, Access::WRITE_OK).map_err(problem)?;
            match existing != Existing::Append && only_appends(path, &stat) {
                true => Err(open_problem(path, operand.shown, operand.side, Errno::PERM)),
                false => Ok(()),
            }
        }
        Err(errno) if path.as_os_str().as_bytes().ends_with(b"/") => {
            Err(Problem::no_directory(operand.shown, errno).unwrap_or_else(|| problem(errno)))
        }
        Err(Errno::NOENT) => {
            let target = resolve_symlinks(path);
            let directory = directory_of(&target);
            match retry(|| rustix::fs::stat(directory)) {
                Ok(stat) if !is_directory(&stat) => Err(problem(Errno::NOTDIR)),
                Ok(_) => {
                    check_access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(problem)
                }
                Err(errno) => Err(problem(errno)),
            }
        }
        Err(errno) => Err(open_problem(path, operand.shown, operand.side, errno)),
    }
}
