//! What is examined before a source waits for its peer: after a refusal, the bytes that the peer
//! has sent by then would be lost. Nothing is created, opened, connected to or waited for.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cordboard::Side;
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;

use super::name::Name;
use super::open::{check_appendable, check_has_offsets, look_up, sink, sink_operand};
use super::opened::Existing;
use super::preview::resolve_symlinks;
use super::sockets::Operand;
use super::standard::open_problem;
use crate::files::{directory_of, kind};
use crate::problem::{Action, Problem};
use crate::signals::retry;

/// Whether a peer that this command does not choose sends to it as soon as it is open.
pub fn listens(source: &Name) -> bool {
    matches!(
        source,
        Name::TcpListen(_)
            | Name::UdpListen(_)
            | Name::UnixListen(_)
            | Name::UnixDgram(_)
            | Name::UnixSeqpacketListen(_)
    )
}

/// Refuses an offset of a source that is known to have none, before it is waited for. The library
/// refuses the others.
pub fn check_source_offset(name: &Name, shown: &str, offset: Option<u64>) -> Result<(), Problem> {
    let side = Side::Source;
    offset.map_or(Ok(()), |_| check_has_offsets(name, Operand { shown, side }))
}

/// Refuses a sink that cannot be opened, as far as that is known without opening it.
pub fn examine_sink(name: &Name, shown: &str, existing: Existing) -> Result<(), Problem> {
    let operand = sink_operand(name, shown, existing)?;
    match name {
        Name::Path(path) => examine_path(path, operand, existing),
        // It is open already.
        Name::Standard | Name::Fd(_) => sink(name, shown, existing).map(drop),
        other => look_up(other, operand),
    }
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
            check_access(path, Access::WRITE_OK).map_err(problem)
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

/// Other errors than those of permissions do not show that open(2) fails.
fn check_access(path: &Path, access: Access) -> Result<(), Errno> {
    let checked = retry(|| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS));
    match checked {
        Err(errno @ (Errno::ACCESS | Errno::ROFS)) => Err(errno),
        _ => Ok(()),
    }
}
