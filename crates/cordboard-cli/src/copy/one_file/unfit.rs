//! Sinks of kinds that do not support an option.

use cordboard::{Kind, Refusal, Side};
use rustix::fs::{AtFlags, FileType, statat};

use super::verify::not_regular;
use crate::copy::job::Job;
use crate::copy::place::Place;
use crate::endpoint::without_offsets;
use crate::files::kind;
use crate::problem::{Problem, refusal_problem};
use crate::signals::retry;

impl Job {
    /// Refuses a sink before it is opened, if its kind is known not to support an option. The
    /// open of a FIFO waits for a reader, which would see an empty stream.
    pub fn check_kind(&self, to: &Place<'_>) -> Result<(), Problem> {
        let stat = || statat(to.directory, to.name, AtFlags::empty());
        // The open reports any other problem.
        let Ok(stat) = retry(stat) else {
            return Ok(());
        };
        let (shown, found) = (to.path().to_string_lossy().into_owned(), kind(&stat));
        let unsynced = match found {
            FileType::Fifo => Some(Kind::Fifo),
            FileType::CharacterDevice => Some(Kind::CharDevice),
            _ => None,
        };
        match unsynced.filter(|_| self.sync) {
            _ if found == FileType::Fifo && self.request.sink_offset.is_some() => {
                Err(without_offsets(&shown, "a FIFO"))
            }
            Some(kind) => {
                let refusal = Refusal::NotSyncable { kind };
                Err(refusal_problem(&shown, Side::Sink, &refusal))
            }
            None if self.staging.verify && is_special(found) => Err(not_regular(to)),
            None => Ok(()),
        }
    }
}

/// Whether it is a FIFO or a device.
fn is_special(kind: FileType) -> bool {
    matches!(
        kind,
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice
    )
}
