//! Whether a route can have a stage, and the paths that then remain.

use super::{Route, refuse, switches};
use crate::endpoint::{Endpoint, Facts, Side};
use crate::pair::{Relation, relation};
use crate::report::Refusal;
use crate::request::Request;
use crate::stage::Stage;

/// Keeps the paths of the route that support a stage.
pub(crate) fn admit(
    stage: &Stage,
    source: &Endpoint<'_>,
    sink: &Endpoint<'_>,
    request: &Request,
    route: &mut Route,
) -> Result<(), Refusal> {
    if stage.transforms() {
        let message = |side, facts: &Facts| match facts.kind.is_datagram() {
            true => Err(Refusal::StagedMessages {
                side,
                kind: facts.kind,
                stage: stage.name(),
            }),
            false => Ok(()),
        };
        message(Side::Source, source.facts())?;
        message(Side::Sink, sink.facts())?;
        if relation(source, sink) != Relation::Strangers {
            return Err(Refusal::StagedOntoItself {
                stage: stage.name(),
            });
        }
    }
    route.keep_to_user_space();
    if route.choices.is_empty() {
        return Err(refuse::no_path(route, switches(request)?));
    }
    Ok(())
}
