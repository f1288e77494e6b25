//! Stages in a transfer's path.

use super::{Failure, Refusal, Transfer, refuse};
use crate::endpoint::{Facts, Relation, Side, overlap};
use crate::route::Switches;
use crate::stage::Stage;

impl<'a> Transfer<'a> {
    /// Puts a stage into the path, behind those that are there already. Of
    /// all paths only read/write is left; see [`stage`](crate::stage) for what
    /// becomes of the account.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], in a [`Failure`] whose report says that nothing moved:
    /// [`Refusal::NoPath`] where read/write is turned off; for a stage that
    /// changes the bytes, [`Refusal::StagedMessages`] between datagrams, whose
    /// boundaries would be lost, and [`Refusal::StagedOntoItself`] within one
    /// file, because what is overwritten when would be undefined.
    pub fn stage(mut self, stage: Stage) -> Result<Transfer<'a>, Failure> {
        if let Err(refusal) = self.admit(&stage) {
            return Err(Failure::refused(refusal));
        }
        if stage.transforms() {
            // Bytes come out elsewhere than they go in: a hole is read as
            // zeros, and how much room the sink needs is not known.
            self.walk = None;
            self.ahead = None;
        }
        self.flow.stages.push(stage);
        Ok(self)
    }

    /// What is written is not what is read.
    pub(crate) fn transforms(&self) -> bool {
        self.flow.stages.transforms()
    }

    fn admit(&mut self, stage: &Stage) -> Result<(), Refusal> {
        let (source, sink) = (&self.flow.source, &self.flow.sink);
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
            if overlap::relation(source, sink) != Relation::Strangers {
                return Err(Refusal::StagedOntoItself {
                    stage: stage.name(),
                });
            }
        }
        self.route.keep_to_user_space();
        if self.route.choices.is_empty() {
            let switches = match self.request.switches {
                Some(switches) => switches,
                None => Switches::from_env()?,
            };
            return Err(refuse::no_path(&self.route, switches));
        }
        Ok(())
    }
}
