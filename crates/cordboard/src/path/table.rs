//! The paths, a row each. All that other rooms know of a path stands here: they
//! name none.

use super::flow::Flow;
use super::step::Step;
use super::verdict::Takes;
use super::{clone, copy_file_range, datagram, direct, read_write, sendfile, splice, staged};
use crate::endpoint::{Facts, Side};
use crate::pair::{Capabilities, Pair};
use crate::request::{DataPath, Why};

/// One path.
pub(crate) struct Row {
    pub(crate) name: DataPath,
    /// Whether it takes a pair.
    pub(crate) takes: fn(&Pair<'_>, &Capabilities) -> Takes,
    /// Sets it up for a transfer. Fails if a required resource is unavailable.
    pub(crate) start: fn(&mut Flow<'_>) -> Result<Box<dyn Step + Send>, Why>,
    /// What becomes of the source's holes.
    pub(crate) holes: Holes,
    /// Its writes go faster into blocks that are reserved before.
    pub(crate) reserves: bool,
    /// All its steps are taken on one thread.
    pub(crate) one_thread: bool,
    /// Its calls have a flag against waiting for a pipe (`SPLICE_F_NONBLOCK`), and
    /// none against waiting for a socket.
    pub(crate) splices: bool,
    /// The side that has no room, where it has declined for want of it, as far as
    /// this path can tell.
    pub(crate) without_room: fn(source: &Facts) -> Option<Side>,
}

/// What becomes of the source's holes on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holes {
    /// It keeps them by itself, and wants the file whole.
    Kept,
    /// They are skipped, and the next write goes to its offset whatever
    /// `O_APPEND` says.
    Skipped,
    /// They are skipped, and the sink is lengthened first.
    Lengthened,
}

/// What most paths are.
const PLAIN: Row = Row {
    name: DataPath::ReadWrite,
    takes: |pair, _| read_write::takes(pair),
    start: |flow| match flow.stages.lend() {
        Some(chain) => Ok(Box::new(staged::Staged::start(flow, chain)?)),
        None => Ok(Box::new(read_write::ReadWrite::start(flow)?)),
    },
    holes: Holes::Skipped,
    reserves: true,
    one_thread: false,
    splices: false,
    without_room: |_| None,
};

static TABLE: [Row; DataPath::ALL.len()] = [
    Row {
        name: DataPath::Clone,
        takes: |pair, _| clone::takes(pair),
        start: |_| Ok(Box::new(clone::Clone::default())),
        holes: Holes::Kept,
        reserves: false,
        ..PLAIN
    },
    Row {
        name: DataPath::Direct,
        takes: |pair, _| direct::takes(pair),
        start: |flow| Ok(Box::new(direct::Direct::start(flow)?)),
        // Its blocks begin anywhere in what the sink has.
        holes: Holes::Lengthened,
        reserves: false,
        // Its ring belongs to the thread that made it.
        one_thread: true,
        ..PLAIN
    },
    Row {
        name: DataPath::CopyFileRange,
        takes: copy_file_range::takes,
        start: |_| Ok(Box::new(copy_file_range::CopyFileRange::default())),
        without_room: the_sink_unless_reading_allocates,
        ..PLAIN
    },
    Row {
        name: DataPath::Sendfile,
        takes: |pair, _| sendfile::takes(pair),
        start: |flow| Ok(Box::new(sendfile::Sendfile::start(flow)?)),
        without_room: the_sink_unless_reading_allocates,
        ..PLAIN
    },
    Row {
        name: DataPath::Splice,
        takes: splice::takes,
        start: |flow| Ok(Box::new(splice::Splice::start(flow)?)),
        splices: true,
        // It declines for the source alone.
        without_room: |_| Some(Side::Source),
        ..PLAIN
    },
    Row {
        name: DataPath::Datagram,
        takes: |pair, _| datagram::takes(pair),
        start: |flow| Ok(Box::new(datagram::Datagram::start(flow)?)),
        ..PLAIN
    },
    PLAIN,
];

/// The row of a path.
pub(crate) fn row(path: DataPath) -> &'static Row {
    let row = &TABLE[path as usize];
    debug_assert_eq!(row.name, path, "the rows are in the order of the names");
    row
}

/// Reading a hole of tmpfs by pages allocates them ([`needs_room`]).
///
/// [`needs_room`]: super::needs_room
fn the_sink_unless_reading_allocates(source: &Facts) -> Option<Side> {
    let in_memory = source.filesystem.is_none_or(|fs| fs.is_in_memory());
    (!(in_memory && source.may_have_holes())).then_some(Side::Sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_row() {
        for path in DataPath::ALL {
            assert_eq!(row(*path).name, *path);
        }
    }
}
