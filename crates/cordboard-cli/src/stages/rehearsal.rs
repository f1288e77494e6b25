//! The memory of a transfer, before its sink is emptied.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::{Errno, Request, Sparse, Stage, Transfer};

use super::{Staging, TransferExtras};
use crate::memory;
use crate::problem::{Problem, Refused, operand_of};
use crate::request;
use crate::sys;

impl Staging {
    /// Builds the stages of a transfer that replaces the contents of its sink. Checks the
    /// request, the beginning of the data, and the memory.
    pub fn prepare(
        &self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
    ) -> Result<Vec<Stage>, Refused> {
        let none = TransferExtras::default;
        let transfer = Transfer::new(source, sink, request.clone());
        self.check(transfer, none(), source_name, sink_name)?;
        let built = self.build(source_name, Some((source, request)));
        let built = built.map_err(|mut refused| {
            refused.problem.text += &format!("; {sink_name} was not changed");
            refused
        })?;
        let ends = ((source, source_name), (sink, sink_name));
        self.rehearse(ends.0, ends.1, request, none())?;
        Ok(built)
    }

    /// Checks that there is memory for a transfer beside the stages that were built, if the
    /// address space is limited: runs it for no bytes, with stand-ins of the stages. It moves
    /// nothing, and its buffers are those of the transfer.
    pub fn rehearse(
        &self,
        (source, source_name): (BorrowedFd<'_>, &dyn Display),
        (sink, sink_name): (BorrowedFd<'_>, &dyn Display),
        request: &Request,
        extras: TransferExtras,
    ) -> Result<(), Refused> {
        if sys::addresses_left().is_none() {
            return Ok(());
        }
        let request = Request {
            sparse: Sparse::Never,
            ..request::for_no_bytes(request)
        };
        let transfer = Transfer::new(source, sink, request);
        let extras = self.with_stand_ins(extras);
        let Ok(transfer) = self.onto(transfer, extras, source_name, sink_name) else {
            // The check of the request reports it.
            return Ok(());
        };
        // The thread that runs the transfer may have other buffers to reuse.
        let reserve = memory::reserve();
        let report = transfer.run().report;
        if reserve.is_ok() && report.errno != Some(Errno::ENOMEM) {
            return Ok(());
        }
        let errno = Errno::ENOMEM;
        let operand = operand_of(None, source_name, sink_name);
        let text = format!("{errno} preparing the transfer");
        let problem = Problem::unsided(operand, errno, text).help("raise the limit (ulimit -v)");
        Err(Refused {
            report: None,
            problem: Box::new(problem),
        })
    }
}
