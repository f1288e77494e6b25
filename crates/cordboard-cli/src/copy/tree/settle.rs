//! Settling a directory, when everything in it has ended.

use std::os::fd::AsFd;

use cordboard::Side;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::level::{Left, Level};
use crate::copy::attributes::refused;
use crate::copy::job::Job;
use crate::copy::outcome::Outcome;
use crate::copy::parallel::Dispatch;
use crate::copy::place::Place;
use crate::directory::{grant_owner_access, is_path_only, sync_directory};
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::retry;

impl Job {
    /// Whether a directory has to be settled.
    pub(super) fn settles(&self, level: &Level) -> bool {
        self.preserve || self.sync || level.owner.is_some_and(|bits| bits != 0o700)
    }
}

/// Settles a directory: its mode, with -p its other attributes, and the
/// disk.
pub(super) fn settle_directory(
    dispatch: &mut Dispatch<'_>,
    left: &Left,
    outcome: &mut Outcome,
) -> Result<(), Problem> {
    let Left { source, sink, .. } = left;
    let [from, to] = &left.names;
    let Level { stat, owner, .. } = &left.level;
    let mut done = Ok(());
    if dispatch.job().preserve {
        let place = Place::top(to);
        // Attributes cannot be set by an `O_PATH` descriptor.
        let open = match is_path_only(sink.as_fd()) {
            true => (dispatch.retry_when_idle(|| grant_owner_access(sink.as_fd())))
                .map_err(|e| refused(&place, "mode", e)),
            false => Ok(None),
        };
        done = open.and_then(|open| {
            let sink = open.as_ref().unwrap_or(sink);
            let from = (&Place::top(from), source.as_fd());
            let sink = (&place, sink.as_fd(), owner.is_some());
            dispatch.job().preserve(from, sink, stat, outcome)
        });
    } else if let Some(bits) = owner.filter(|bits| *bits != 0o700) {
        let failed = |e| refused(&Place::top(to), "mode", e);
        let now = retry(|| cordboard::fstat(sink)).map_err(failed)?;
        let mode = now.st_mode & 0o7077 | bits;
        match retry(|| rustix::fs::fchmod(sink, Mode::from_raw_mode(mode))) {
            Err(errno) if !is_fixed(errno) => return Err(failed(errno)),
            _ => {}
        }
    }
    if dispatch.job().sync {
        let failed = |e| Problem::call(to.to_string_lossy(), Side::Sink, e, Action::Sync);
        // A signal to stop does not replace the problem before it, which is reported.
        let synced = match sync_directory(sink.as_fd(), None) {
            Ok(synced) => synced.map_err(failed),
            Err(stop) => Err(stop.into()),
        };
        done = done.and(synced);
    }
    done
}

/// Whether modes cannot be changed there. The copy is complete, since without -p
/// no mode is promised: only the owner has more access than at the source.
///
/// `EPERM`: the mount assigns another owner, as that of vfat does
/// (`setattr_prepare`, fs/attr.c). `EACCES`, `EROFS`: of a server. `ENOSYS`: of a
/// server of FUSE, as `EOPNOTSUPP`; or a filter refuses the call.
fn is_fixed(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::NOSYS | Errno::OPNOTSUPP
    )
}
