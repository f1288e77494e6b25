//! Stages in a transfer's path.

use super::Transfer;
use crate::plan;
use crate::report::Failure;
use crate::stage::Stage;

impl<'a> Transfer<'a> {
    /// Appends a stage. Of all paths only read/write remains; see
    /// [`stage`](crate::stage) for the effect on the counts.
    ///
    /// # Errors
    ///
    /// A [`Refusal`](crate::Refusal), in a [`Failure`] whose report says that
    /// nothing moved: [`NoPath`](crate::Refusal::NoPath) if read/write is turned
    /// off; for a stage that changes the bytes,
    /// [`StagedMessages`](crate::Refusal::StagedMessages) between datagrams, whose
    /// boundaries would be lost, and
    /// [`StagedOntoItself`](crate::Refusal::StagedOntoItself) within one file,
    /// where the order of reads and overwrites would be undefined.
    pub fn stage(mut self, stage: Stage) -> Result<Transfer<'a>, Failure> {
        let (source, sink) = (self.flow.source.endpoint(), self.flow.sink.endpoint());
        plan::admit(&stage, source, sink, &self.request, &mut self.route)
            .map_err(Failure::refused)?;
        if stage.transforms() {
            // Output offsets differ from input offsets: holes are read as zeros,
            // and the space that the sink needs is unknown.
            self.walk = None;
            self.preallocation = None;
        }
        self.flow.stages.push(stage);
        Ok(self)
    }

    /// Returns whether a stage changes the bytes.
    pub(crate) fn transforms(&self) -> bool {
        self.flow.stages.transforms()
    }
}
