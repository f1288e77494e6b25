//! Which paths are tried first: what was measured between kinds of ends, with its evidence.
//!
//! It is a first choice. A long transfer with a socket measures the paths, and what it finds is
//! the first choice of the next transfer (docs/design/tuning.md).

use crate::endpoint::{CloneAbility, Filesystem, Kind};
use crate::pair::Pair;
use crate::request::DataPath::{
    self, Clone, CopyFileRange, Datagram, Direct as DirectIo, ReadWrite, Sendfile, Splice,
};
use crate::request::Direct;

/// Up to this size, read/write takes fewer calls than any other path, and the
/// bytes stay in the CPU cache.
const TINY: u64 = 64 << 10;
/// Up to this size, read/write is faster even than sharing blocks on xfs, and
/// uses hardly more space.
const VERY_TINY: u64 = 16 << 10;

/// The first choices of some pairs.
#[derive(Debug)]
pub(super) struct Prior {
    /// The pairs to which it applies, unless a former one does.
    applies: fn(&Pair<'_>) -> bool,
    /// The paths to try first, in this order.
    pub(super) first: &'static [DataPath],
    /// The reason.
    pub(super) evidence: &'static str,
}

/// The first one that applies counts.
const PRIORS: &[Prior] = &[
    Prior {
        applies: |pair| pair.source.kind.is_datagram() || pair.sink.kind.is_datagram(),
        first: &[Datagram, ReadWrite],
        evidence: "only the datagram path keeps message boundaries with several messages a call",
    },
    Prior {
        applies: |pair| are_cached(pair) && pair.direct_io == Direct::Always,
        first: &[DirectIo, Clone, ReadWrite, CopyFileRange, Sendfile],
        evidence: "the request demands direct I/O",
    },
    Prior {
        applies: |pair| {
            let is_slow = |fs: Filesystem| fs.writes_small_files_faster();
            are_cached(pair)
                && pair.sink.filesystem.is_some_and(is_slow)
                && is_at_most(pair, VERY_TINY)
        },
        first: &[ReadWrite, Clone, DirectIo, CopyFileRange, Sendfile],
        evidence: "up to 16 KiB, xfs writes a file faster than it shares blocks",
    },
    Prior {
        applies: |pair| {
            let may_share = |fs: Filesystem| fs.clone_ability() == CloneAbility::Perhaps;
            are_cached(pair)
                && pair.sink.filesystem.is_none_or(may_share)
                && pair.sink.kind.is_file()
                && !is_at_most(pair, TINY)
        },
        first: &[Clone, DirectIo, CopyFileRange, ReadWrite, Sendfile],
        evidence: "the file system may share blocks or copy on its server",
    },
    Prior {
        applies: are_cached,
        first: &[Clone, DirectIo, ReadWrite, CopyFileRange, Sendfile],
        evidence: "a buffer in the processor's cache is as fast as copy_file_range, which shares no \
                   blocks here, and writes longer runs of pages",
    },
    Prior {
        applies: |pair| {
            let is_file = matches!(
                pair.source.kind,
                Kind::File | Kind::Memfd | Kind::BlockDevice
            );
            is_file && pair.sink.kind == Kind::CharDevice
        },
        first: &[Sendfile, Splice],
        evidence: "the sink discards the bytes, so none needs to be touched",
    },
    Prior {
        applies: |pair| pair.source.kind.is_cached() && pair.sink.kind == Kind::Tcp,
        first: &[Sendfile, Splice],
        evidence: "sendfile sends each 64 KiB before it reads the next: to one client it was 1.5 times \
                   as fast as splice, which fills a pipe first; to several as fast",
    },
    Prior {
        applies: |pair| pair.source.kind.is_cached() && pair.sink.kind == Kind::UnixStream,
        first: &[Sendfile, Splice],
        evidence: "the reader copies from the page cache: twice the rate of read/write at a third of \
                   its processor time, from 64 MiB on; splice, which fills a pipe first, was up to \
                   15 % slower",
    },
    Prior {
        applies: |pair| depends_on_pacing(pair.source.kind, pair.sink.kind) && pair.sink.paced,
        first: &[ReadWrite, Splice],
        evidence: "BBR sends the pages of a UNIX socket in short segments, and each wakes the reader: \
                   splice had half to three quarters of the rate of read/write; 1.5 times \
                   without pacing",
    },
    Prior {
        applies: |pair| pair.source.kind == Kind::CharDevice && !pair.sink.kind.is_pipe(),
        first: &[ReadWrite, Splice],
        evidence: "a buffer in the processor's cache is filled faster than new pages",
    },
    USUAL,
];
const USUAL: Prior = Prior {
    applies: |_| true,
    first: &[],
    evidence: "paths without a copy to user space come first",
};

/// Returns what is known of a pair.
pub(super) fn prior(pair: &Pair<'_>) -> &'static Prior {
    let known = PRIORS.iter().find(|prior| (prior.applies)(pair));
    known.unwrap_or(&USUAL)
}

/// Returns whether the choice depends on [`Facts::paced`](crate::endpoint::Facts) of the sink.
pub(super) fn depends_on_pacing(source: Kind, sink: Kind) -> bool {
    (source, sink) == (Kind::UnixStream, Kind::Tcp)
}

fn are_cached(pair: &Pair<'_>) -> bool {
    pair.source.kind.is_cached() && pair.sink.kind.is_cached()
}

fn is_at_most(pair: &Pair<'_>, bytes: u64) -> bool {
    pair.known().is_some_and(|known| known <= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list names no path twice, and states why.
    #[test]
    fn each_prior_has_its_evidence() {
        for prior in PRIORS {
            assert!(!prior.evidence.is_empty());
            for (rank, path) in prior.first.iter().enumerate() {
                assert!(!prior.first[..rank].contains(path), "{prior:?}");
            }
        }
    }
}
