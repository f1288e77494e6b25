//! Selects the paths to try for a pair, their order, and the reasons.
//!
//! A pure function of facts that touches no descriptor, so tests can try every
//! pair of kinds under every set of capabilities.

use super::prior;
use crate::endpoint::{Facts, Kind};
use crate::pair::{Capabilities, Pair};
use crate::path;
use crate::request::{DataPath, Declined, Direct, Request, Switches, Tune, Why};

/// A path in a route, with the reason for choosing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The path.
    pub path: DataPath,
    /// Why it suits the pair.
    pub why: &'static str,
}

/// The paths to try, in order, and the excluded ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The paths to try, in this order.
    pub choices: Vec<Choice>,
    /// The excluded paths and the reasons, in the order in which they would
    /// have been tried.
    pub excluded: Vec<Declined>,
    /// Why the paths are tried in this order, unless an earlier transfer has found another first
    /// one ([`Tune`](crate::Tune)).
    pub prior: &'static str,
    pub(crate) order: [DataPath; PATHS],
    /// A long transfer measures the paths.
    pub(crate) measures: bool,
}

impl Route {
    /// Returns the paths that a long transfer measures while it runs, unless
    /// [`Tune::Off`](crate::Tune::Off) forbids it. If there are none, it keeps to the first
    /// choice.
    pub fn measured(&self) -> impl Iterator<Item = DataPath> + '_ {
        let choices = self.choices.iter().map(|choice| choice.path);
        choices.filter(|path| self.measures && path::row(*path).tunes)
    }

    /// Returns whether the request leaves settings to choose from: it has no block, and its switches
    /// leave more than one path.
    pub(crate) fn has_settings(&self, request: &Request) -> bool {
        request.block.is_none() && self.choices.len() > 1
    }

    /// Keeps only the path that gives stages access to the bytes.
    pub(super) fn keep_to_user_space(&mut self) {
        self.measures = false;
        self.choices.retain(|choice| {
            let kept = choice.path == DataPath::ReadWrite;
            if !kept {
                self.excluded.push(Declined {
                    path: choice.path,
                    why: Why::from("stages need the bytes in user space"),
                });
            }
            kept
        });
        let rank = |path| self.order.iter().position(|other| *other == path);
        self.excluded.sort_by_key(|declined| rank(declined.path));
    }
}

/// Returns the requested direct I/O mode. Switches that force the direct path
/// request it too.
pub(super) fn direct_mode(request: &Request, switches: Switches) -> Direct {
    match switches.forced() {
        Some(DataPath::Direct) => Direct::Always,
        _ => request.direct,
    }
}

/// Returns the route for a pair.
pub fn route(pair: &Pair<'_>, can: &Capabilities, switches: Switches) -> Route {
    let pair = &Pair {
        direct_io: direct_mode(pair.request, switches),
        ..*pair
    };
    let prior = prior::prior(pair);
    let order = order(prior.first);
    let answers = order.map(|path| {
        if !switches.allows(path) {
            Err(Why::from("turned off"))
        } else if pair.overlapping && path != DataPath::ReadWrite {
            Err(Why::from("the ranges overlap"))
        } else {
            (path::row(path).takes)(pair, can)
        }
    });
    // Thousands of transfers may be idle: no list is larger than its contents.
    let chosen = answers.iter().filter(|answer| answer.is_ok()).count();
    let mut route = Route {
        choices: Vec::with_capacity(chosen),
        excluded: Vec::with_capacity(PATHS - chosen),
        prior: prior.evidence,
        order,
        measures: false,
    };
    for (path, answer) in order.into_iter().zip(answers) {
        match answer {
            Ok(why) => route.choices.push(Choice { path, why }),
            Err(why) => route.excluded.push(Declined { path, why }),
        }
    }
    route.measures = measures(pair, &route);
    route
}

/// Whether a long transfer measures the paths of its route: between streams, of which one
/// at least is a socket, if the request leaves paths and sizes to choose from.
fn measures(pair: &Pair<'_>, route: &Route) -> bool {
    let (source, sink) = (pair.source, pair.sink);
    let has_socket = source.kind.is_stream_socket() || sink.kind.is_stream_socket();
    let is_first_best = slower_calls_cost(source.kind, pair.request)
        && (route.choices.first()).is_some_and(|choice| choice.path == DataPath::Splice);
    route.has_settings(pair.request)
        && !is_first_best
        && has_socket
        && can_be_entered(source)
        && can_be_entered(sink)
        && !sink.kind.is_cached()
}

/// Whether measuring slower calls costs processor time in the rest of the transfer, more than a
/// better setting saves: they let the receive buffer of a TCP source grow, for good, beyond the
/// processor's cache (docs/design/tuning.md).
pub(crate) fn slower_calls_cost(source: Kind, request: &Request) -> bool {
    source == Kind::Tcp && request.tune != Some(Tune::EachStep)
}

/// Whether a path can begin and end anywhere in the stream of this descriptor, and its
/// calls can have any length.
fn can_be_entered(facts: &Facts) -> bool {
    let kind = facts.kind;
    let is_stream = kind.is_stream_socket() || (kind.is_pipe() && !facts.is_packet_pipe());
    let is_file = matches!(kind, Kind::File | Kind::Memfd | Kind::BlockDevice);
    let is_file = is_file && !facts.is_direct() && !facts.unpaged;
    is_stream || is_file || (kind == Kind::CharDevice && facts.memory)
}

/// The number of paths.
const PATHS: usize = DataPath::ALL.len();

/// All paths: those in `first`, then the others in the order that suits most pairs. A
/// path that has no rank in either comes last.
fn order(first: &[DataPath]) -> [DataPath; PATHS] {
    use DataPath::{Clone, CopyFileRange, Datagram, Direct, ReadWrite, Sendfile, Splice};
    let usual = [
        Splice,
        Sendfile,
        ReadWrite,
        CopyFileRange,
        Clone,
        Direct,
        Datagram,
    ];
    let rank = |list: &[DataPath], path| list.iter().position(|p| *p == path);
    let mut all = [ReadWrite; PATHS];
    all.copy_from_slice(DataPath::ALL);
    all.sort_by_key(|path| {
        let first_rank = rank(first, *path).unwrap_or(first.len());
        (first_rank, rank(&usual, *path).unwrap_or(usual.len()))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Size, Sparse};

    const ALL: [Capabilities; 4] = {
        let mut all = [Capabilities::none(); 4];
        all[1].copy_file_range = true;
        all[2].private_pipe = true;
        all[3].copy_file_range = true;
        all[3].private_pipe = true;
        all
    };

    fn variants(kind: Kind) -> Vec<Facts> {
        let sizes: &[Option<u64>] = if kind.is_cached() {
            &[Some(0), Some(1), Some(1 << 40), None]
        } else {
            &[None]
        };
        let mut all = Vec::new();
        for bits in 0..4 {
            for size in sizes {
                all.push(Facts {
                    append: bits & 1 != 0,
                    o_direct: bits & 2 != 0,
                    size: *size,
                    ..Facts::plain(kind)
                });
            }
        }
        if kind == Kind::CharDevice {
            all.push(Facts {
                memory: false,
                ..Facts::plain(kind)
            });
        }
        all
    }

    fn requests() -> Vec<Request> {
        let mut all = Vec::new();
        for stable in [false, true] {
            for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
                for size in [Size::Eof, Size::Bytes(0), Size::Bytes(1 << 20)] {
                    all.push(Request {
                        size,
                        stable,
                        sparse,
                        ..Request::default()
                    });
                }
            }
        }
        all
    }

    /// Every pair of kinds, with every flag, size, request and capability: once for all
    /// checks, because there are millions of routes.
    #[test]
    fn routes_of_every_pair() {
        let requests = requests();
        let mut count = 0;
        for source in Kind::ALL.iter().copied().flat_map(variants) {
            for sink in Kind::ALL.iter().copied().flat_map(variants) {
                for request in &requests {
                    let pair = Pair::new(&source, &sink, request);
                    for can in &ALL {
                        let route = route(&pair, can, Switches::all());
                        has_the_path_that_works_everywhere(&pair, &route);
                        does_nothing_forbidden(&pair, can, &route);
                        measures_only_streams_with_a_socket(&pair, &route);
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 1_000_000, "{count}");
    }

    fn has_the_path_that_works_everywhere(pair: &Pair<'_>, route: &Route) {
        let mut choices = route.choices.iter();
        assert!(choices.any(|c| c.path == DataPath::ReadWrite), "{pair:?}");
        let all = route.choices.len() + route.excluded.len();
        assert_eq!(all, DataPath::ALL.len());
    }

    /// Asserts that no path is chosen that the kernel or the request forbids.
    fn does_nothing_forbidden(pair: &Pair<'_>, can: &Capabilities, route: &Route) {
        let (source, sink) = (pair.source, pair.sink);
        for choice in &route.choices {
            let path = choice.path;
            let messages =
                source.may_be_messages() || sink.has_pieces() || sink.kind == Kind::Eventfd;
            assert!(path != DataPath::Datagram || !messages, "{pair:?}");
            let pages = matches!(path, DataPath::Splice | DataPath::Sendfile);
            let files = matches!(path, DataPath::Clone | DataPath::CopyFileRange);
            if files {
                assert!(source.kind.is_file() && sink.kind.is_file() && !sink.append);
            }
            if path == DataPath::CopyFileRange {
                assert!(can.copy_file_range && source.size != Some(0));
            }
            if path == DataPath::Splice && !source.kind.is_pipe() && !sink.kind.is_pipe() {
                assert!(can.private_pipe);
            }
            if pages {
                assert!(!source.kind.is_record() && !sink.kind.is_record());
                assert!(!source.kind.is_datagram() && !sink.kind.is_datagram());
                assert!(!(sink.append && sink.kind.is_file()));
                assert!(source.kind != Kind::Tty && sink.kind != Kind::Tty);
                assert!(!source.has_pieces() && !sink.has_pieces(), "{pair:?}");
                let from = source.kind;
                let pages = from.is_cached() || from.is_pipe() || from.is_stream_socket();
                let aliases = pages && !sink.kind.is_cached();
                let lasting = sink.kind.is_pipe() || sink.kind.is_stream_socket();
                assert!(!(pair.request.stable && aliases && lasting));
            }
            if pair.request.sparse == Sparse::Always && sink.kind.is_file() {
                assert_eq!(path, DataPath::ReadWrite);
            }
        }
    }

    fn measures_only_streams_with_a_socket(pair: &Pair<'_>, route: &Route) {
        if route.measured().next().is_none() {
            return;
        }
        let (source, sink) = (pair.source, pair.sink);
        assert!(source.kind.is_stream_socket() || sink.kind.is_stream_socket());
        assert!(!source.kind.is_datagram() && !sink.kind.is_cached());
        assert!(route.measured().all(|path| path::row(path).tunes));
    }

    #[test]
    fn a_relay_from_tcp_keeps_to_splice() {
        let [tcp, unix] = [Kind::Tcp, Kind::UnixStream].map(Facts::plain);
        let measured = |source: &Facts, tune: Option<Tune>| {
            let request = Request {
                tune,
                ..Request::default()
            };
            let route = route(&Pair::new(source, &tcp, &request), &ALL[3], Switches::all());
            route.measured().count()
        };
        assert_eq!(measured(&tcp, None), 0);
        assert_eq!(measured(&tcp, Some(Tune::EachStep)), 2);
        assert_eq!(measured(&unix, None), 2);
    }

    #[test]
    fn a_cached_file_is_sent_to_a_socket_by_sendfile_first() {
        let request = Request::default();
        let paths = [DataPath::Sendfile, DataPath::Splice, DataPath::ReadWrite];
        for source in [Kind::File, Kind::Memfd, Kind::BlockDevice].map(Facts::plain) {
            for sink in [Kind::Tcp, Kind::UnixStream].map(Facts::plain) {
                let pair = Pair::new(&source, &sink, &request);
                let route = route(&pair, &ALL[3], Switches::all());
                let measured: Vec<_> = route.measured().collect();
                assert_eq!(measured, paths);
            }
        }
    }

    #[test]
    fn only_a_paced_connection_gets_the_bytes_of_a_unix_socket_by_copies_first() {
        let request = Request::default();
        let source = Facts::plain(Kind::UnixStream);
        for (paced, path) in [(false, DataPath::Splice), (true, DataPath::ReadWrite)] {
            let sink = Facts {
                paced,
                ..Facts::plain(Kind::Tcp)
            };
            let pair = Pair::new(&source, &sink, &request);
            let route = route(&pair, &ALL[3], Switches::all());
            assert_eq!(route.measured().next(), Some(path));
        }
    }

    /// Each pair of kinds once: what stages exclude depends on the path alone.
    #[test]
    fn stages_leave_the_path_through_user_space() {
        let request = Request::default();
        for source in Kind::ALL.iter().copied().map(Facts::plain) {
            for sink in Kind::ALL.iter().copied().map(Facts::plain) {
                let pair = Pair::new(&source, &sink, &request);
                let route = route(&pair, &ALL[3], Switches::all());
                let mut staged = route.clone();
                staged.keep_to_user_space();
                let left: Vec<_> = staged.choices.iter().map(|c| c.path).collect();
                assert_eq!(left, [DataPath::ReadWrite]);
                assert_eq!(staged.excluded.len(), DataPath::ALL.len() - 1);
                for choice in &route.choices {
                    let why = staged.excluded.iter().find(|d| d.path == choice.path);
                    let listed = why.is_some_and(|d| d.why.to_string().contains("in user space"));
                    assert!(listed || choice.path == DataPath::ReadWrite);
                }
            }
        }
    }

    #[test]
    fn overlapping_ranges_are_read_before_they_are_written() {
        let file = Facts::plain(Kind::File);
        let request = Request::default();
        let pair = Pair {
            overlapping: true,
            ..Pair::new(&file, &file, &request)
        };
        let route = route(&pair, &ALL[3], Switches::all());
        let paths: Vec<_> = route.choices.iter().map(|c| c.path).collect();
        assert_eq!(paths, [DataPath::ReadWrite]);
    }

    #[test]
    fn switches_leave_only_what_they_allow() {
        let file = Facts::plain(Kind::File);
        let request = Request::default();
        let pair = Pair::new(&file, &file, &request);
        for path in DataPath::ALL.iter().copied() {
            let off = route(&pair, &ALL[3], Switches::all().without(path));
            assert!(off.choices.iter().all(|c| c.path != path));
            let only = route(&pair, &ALL[3], Switches::only(&[path]));
            assert!(only.choices.iter().all(|c| c.path == path));
        }
    }
}
