//! The checks of a transfer, before its sink is emptied.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::{Request, Stage, Transfer};

use super::{Staging, TransferExtras};
use crate::problem::Refused;

impl Staging {
    /// Builds the stages of a transfer that replaces the contents of its sink. Checks the
    /// request and the beginning of the data.
    pub fn prepare(
        &self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<Vec<Stage>, Refused> {
        let transfer = Transfer::new(source, sink, request.clone());
        self.check(transfer, TransferExtras::default(), source_name, sink_name)?;
        let built = self.build(source_name, Some((source, request)));
        built.map_err(|mut refused| {
            refused.problem.text += &format!("; {sink_name} was not changed");
            refused
        })
    }
}
