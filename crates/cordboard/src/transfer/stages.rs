//! Stages in a transfer's path.

use super::Transfer;
use crate::plan;
use crate::report::Failure;
use crate::stage::Stage;

impl<'a> Transfer<'a> {
    /// Puts a stage into the path, behind those that are there already. Of
    /// all paths only read/write is left; see [`stage`](crate::stage) for what
    /// becomes of the account.
    ///
    /// # Errors
    ///
    /// A [`Refusal`](crate::Refusal), in a [`Failure`] whose report says that nothing moved:
    /// [`NoPath`](crate::Refusal::NoPath) where read/write is turned off; for a stage that
    /// changes the bytes, [`StagedMessages`](crate::Refusal::StagedMessages) between datagrams, whose
    /// boundaries would be lost, and [`StagedOntoItself`](crate::Refusal::StagedOntoItself) within one
    /// file, because what is overwritten when would be undefined.
    pub fn stage(mut self, stage: Stage) -> Result<Transfer<'a>, Failure> {
        let (source, sink) = (self.flow.source.endpoint(), self.flow.sink.endpoint());
        plan::admit(&stage, source, sink, &self.request, &mut self.route)
            .map_err(Failure::refused)?;
        if stage.transforms() {
            // Bytes come out elsewhere than they go in: a hole is read as
            // zeros, and how much room the sink needs is not known.
            self.walk = None;
            self.preallocation = None;
        }
        self.flow.stages.push(stage);
        Ok(self)
    }

    /// What is written is not what is read.
    pub(crate) fn transforms(&self) -> bool {
        self.flow.stages.transforms()
    }
}
