//! Whether a stage may be put into a route, and what is left of the route then.

use super::{Route, refuse, switches};
use crate::endpoint::{Endpoint, Facts, Side};
use crate::pair::{Relation, relation};
use crate::report::Refusal;
use crate::request::Request;
use crate::stage::Stage;

/// Leaves the paths of the route on which a stage can work.
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
