//! Decisions made before any byte moves: whether two descriptors can be paired,
//! and by which route.

mod overlap;
mod prior;
mod refuse;
mod route;
mod staged;

pub(crate) use route::slower_calls_cost;
pub use route::{Choice, Route, route};
pub(crate) use staged::admit;

use std::os::fd::BorrowedFd;

use crate::endpoint::Endpoint;
use crate::pair::{self, Capabilities, Pair, Relation};
use crate::path;
use crate::report::{Failure, Refusal};
use crate::request::{DataPath, Request, Switches};

/// Returns the route that a transfer between these two would take, without
/// creating a transfer. Neither descriptor is read or written, so an endpoint
/// may be an `O_PATH` descriptor, with [facts that the caller
/// supplies](Endpoint::with_facts).
///
/// # Errors
///
/// A [`Refusal`], as [`Transfer::new`](super::Transfer::new) gives it.
pub fn plan(
    source: &Endpoint<'_>,
    sink: &Endpoint<'_>,
    request: &Request,
) -> Result<Route, Failure> {
    let decided = decide_between(*source, *sink, request).map_err(Failure::refused)?;
    Ok(decided.route)
}

/// The decision for two descriptors and a request.
pub(crate) struct Decided<'a> {
    pub(crate) source: Endpoint<'a>,
    pub(crate) sink: Endpoint<'a>,
    pub(crate) route: Route,
    /// The number of bytes to move, if the source is a file or a block device.
    pub(crate) known: Option<u64>,
}

/// Probes both descriptors, checks whether they can be paired, finds their
/// relation, and decides the route. Each is done once.
pub(crate) fn decide<'a>(
    source: BorrowedFd<'a>,
    sink: BorrowedFd<'a>,
    request: &Request,
) -> Result<Decided<'a>, Refusal> {
    let (source, sink) = refuse::probe(source, sink, request)?;
    decide_between(source, sink, request)
}

/// Decides for endpoints that are already probed. Facts that only some routes need are
/// queried if such a route is possible.
fn decide_between<'a>(
    mut source: Endpoint<'a>,
    mut sink: Endpoint<'a>,
    request: &Request,
) -> Result<Decided<'a>, Refusal> {
    refuse::unfit(source.facts(), sink.facts(), request)?;
    refuse::without_operation(&source, &sink)?;
    let switches = switches(request)?;
    let relation = pair::relation(&source, &sink);
    let within = overlap::within(&source, &sink, relation, request)?;
    let overlapping = within == overlap::Within::Downwards;
    look_closer(&mut source, &mut sink, relation, request, switches);
    if prior::depends_on_pacing(source.kind(), sink.kind()) {
        sink.look_for_pacing();
    }
    let pair = Pair {
        relation,
        overlapping,
        ..Pair::new(source.facts(), sink.facts(), request)
    };
    let route = route::route(&pair, &Capabilities::current(), switches);
    if route.choices.is_empty() {
        return Err(refuse::no_path(&route, switches));
    }
    let known = pair.known().filter(|_| source.kind().is_cached());
    Ok(Decided {
        source,
        sink,
        route,
        known,
    })
}

/// Returns the allowed paths: those of the request, or else of the environment.
pub(crate) fn switches(request: &Request) -> Result<Switches, Refusal> {
    match request.switches {
        Some(switches) => Ok(switches),
        None => Ok(Switches::from_env()?),
    }
}

/// Queries the kernel for facts that only direct I/O needs, if that path is
/// possible.
fn look_closer(
    source: &mut Endpoint<'_>,
    sink: &mut Endpoint<'_>,
    relation: Relation,
    request: &Request,
    switches: Switches,
) {
    let pair = Pair {
        relation,
        direct_io: route::direct_mode(request, switches),
        ..Pair::new(source.facts(), sink.facts(), request)
    };
    if !switches.allows(DataPath::Direct) || path::direct::worth_asking(&pair).is_err() {
        return;
    }
    let range = pair.from().zip(pair.known());
    source.look_closer(range);
    sink.look_closer(None);
}
