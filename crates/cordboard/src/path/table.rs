//! The paths, a row each. What a transfer and an engine know of a path is in its row, or is
//! an answer of its [`Step`].

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
    /// Whether it accepts a pair.
    pub(crate) takes: fn(&Pair<'_>, &Capabilities) -> Takes,
    /// Sets it up for a transfer. Fails if a required resource is unavailable.
    pub(crate) start: fn(&mut Flow<'_>) -> Result<Box<dyn Step + Send>, Why>,
    /// How it treats the source's holes.
    pub(crate) holes: Holes,
    /// Its writes are faster into preallocated blocks.
    pub(crate) reserves: bool,
    /// All its steps run on one thread.
    pub(crate) one_thread: bool,
    /// Its calls have a flag against blocking on a pipe (`SPLICE_F_NONBLOCK`), and
    /// none against blocking on a socket.
    pub(crate) splices: bool,
    /// The size of its calls can be chosen ([`Step::set_piece`]), and it can begin in the
    /// middle of a transfer.
    pub(crate) tunes: bool,
    /// Whether it declines if another path is left, because its calls could block a thread that
    /// must not block.
    pub(crate) could_wait: fn(&Flow<'_>) -> bool,
    /// The side that lacks space, if it declined for that reason, as far as this
    /// path can tell.
    pub(crate) without_room: fn(source: &Facts) -> Option<Side>,
}

/// How a path treats the source's holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holes {
    /// The kernel keeps them; the path takes the whole file.
    Kept,
    /// They are skipped, and the next write goes to its offset regardless of
    /// `O_APPEND`.
    Skipped,
    /// They are skipped, and the sink is lengthened first.
    Lengthened,
}

/// A row with the defaults of the other fields.
const fn plain(
    name: DataPath,
    takes: fn(&Pair<'_>, &Capabilities) -> Takes,
    start: fn(&mut Flow<'_>) -> Result<Box<dyn Step + Send>, Why>,
) -> Row {
    Row {
        name,
        takes,
        start,
        holes: Holes::Skipped,
        reserves: true,
        one_thread: false,
        splices: false,
        tunes: false,
        could_wait: |_| false,
        without_room: |_| None,
    }
}

static TABLE: [Row; DataPath::ALL.len()] = [
    Row {
        holes: Holes::Kept,
        reserves: false,
        ..plain(
            DataPath::Clone,
            |pair, _| clone::takes(pair),
            |_| Ok(Box::new(clone::Clone::default())),
        )
    },
    Row {
        // Its blocks can begin anywhere within the sink's length.
        holes: Holes::Lengthened,
        reserves: false,
        // Its ring belongs to the thread that made it.
        one_thread: true,
        ..plain(
            DataPath::Direct,
            |pair, _| direct::takes(pair),
            |flow| Ok(Box::new(direct::Direct::start(flow)?)),
        )
    },
    Row {
        without_room: the_sink_unless_reading_allocates,
        ..plain(DataPath::CopyFileRange, copy_file_range::takes, |_| {
            Ok(Box::new(copy_file_range::CopyFileRange::default()))
        })
    },
    Row {
        tunes: true,
        could_wait: |flow| flow.sink_could_wait(),
        without_room: the_sink_unless_reading_allocates,
        ..plain(
            DataPath::Sendfile,
            |pair, _| sendfile::takes(pair),
            |flow| Ok(Box::new(sendfile::Sendfile::start(flow)?)),
        )
    },
    Row {
        splices: true,
        tunes: true,
        could_wait: splice::could_wait,
        // It declines only for the source.
        without_room: |_| Some(Side::Source),
        ..plain(DataPath::Splice, splice::takes, |flow| {
            Ok(Box::new(splice::Splice::start(flow)?))
        })
    },
    plain(
        DataPath::Datagram,
        |pair, _| datagram::takes(pair),
        |flow| Ok(Box::new(datagram::Datagram::start(flow)?)),
    ),
    Row {
        tunes: true,
        ..plain(
            DataPath::ReadWrite,
            |pair, _| read_write::takes(pair),
            |flow| match flow.stages.lend() {
                Some(chain) => Ok(Box::new(staged::Staged::start(flow, chain)?)),
                None => Ok(Box::new(read_write::ReadWrite::start(flow)?)),
            },
        )
    },
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
