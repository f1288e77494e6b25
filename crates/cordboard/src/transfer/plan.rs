//! The decisions before anything moves: may these two be paired, and by which
//! route?

use super::{Failure, Refusal, Request, refuse};
use crate::endpoint::{Endpoint, overlap};
use crate::path;
use crate::route::{self, Capabilities, Pair, PathName, Route, Switches};

/// The route that a transfer between these two would take, without one. Only
/// facts are asked, so that an endpoint may be a descriptor that merely stands
/// for something (`O_PATH`), with [facts of the caller's](Endpoint::with_facts).
///
/// # Errors
///
/// A [`Refusal`], as [`Transfer::new`](super::Transfer::new) gives it.
pub fn plan(
    source: &Endpoint<'_>,
    sink: &Endpoint<'_>,
    request: &Request,
) -> Result<Route, Failure> {
    match decide(&mut source.clone(), &mut sink.clone(), request) {
        Ok(decided) => Ok(decided.route),
        Err(refusal) => Err(Failure::refused(refusal)),
    }
}

/// What was decided of a pair and a request.
pub(super) struct Decided {
    pub(super) route: Route,
    /// Bytes there are to move from a file or a block device.
    pub(super) known: Option<u64>,
}

/// The endpoints learn what only direct I/O depends on, where that may be the
/// way.
pub(super) fn decide(
    source: &mut Endpoint<'_>,
    sink: &mut Endpoint<'_>,
    request: &Request,
) -> Result<Decided, Refusal> {
    refuse::unfit(source.facts(), sink.facts(), request)?;
    refuse::without_operation(source, sink)?;
    let switches = match request.switches {
        Some(switches) => switches,
        None => Switches::from_env()?,
    };
    let relation = overlap::relation(source, sink);
    let within = overlap::within(source, sink, relation, request)?;
    let overlapping = within == overlap::Within::Downwards;
    look_closer(source, sink, relation, request, switches);
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
    Ok(Decided { route, known })
}

/// Asks the kernel what only direct I/O depends on, where that may be the way.
fn look_closer(
    source: &mut Endpoint<'_>,
    sink: &mut Endpoint<'_>,
    relation: overlap::Relation,
    request: &Request,
    switches: Switches,
) {
    let pair = Pair {
        relation,
        direct: route::direct(request, switches),
        ..Pair::new(source.facts(), sink.facts(), request)
    };
    if !switches.allows(PathName::Direct) || path::direct::worth_asking(&pair).is_err() {
        return;
    }
    let range = pair.from().zip(pair.known());
    source.look_closer(range);
    sink.look_closer(None);
}
