//! What the session reports that does not affect the result.

use std::fmt::Display;
use std::os::fd::BorrowedFd;

use cordboard::Request;

use super::Session;
use crate::output::{one_line, print_line};
use crate::request;

/// Reasons for missing attributes that are remembered, at most.
const MOST_REASONS: usize = 64;

impl Session {
    /// Prints a line on standard error that does not affect the result.
    pub fn print(&mut self, line: &dyn Display) {
        self.watch.clear();
        let line = line.to_string();
        print_line(one_line(&line));
    }

    /// Warns of an offset behind the end of the source.
    pub fn warn_of_offset(&mut self, source: (BorrowedFd<'_>, &dyn Display), request: &Request) {
        if let Some(warning) = request::offset_warning(source, request) {
            self.print(&warning);
        }
    }

    /// Reports an attribute that was not copied, once for each reason: a reason
    /// may apply to every file.
    pub fn attribute_lost(&mut self, line: &str, reason: Option<String>) {
        self.account.add_unkept(1);
        match reason {
            Some(reason) if self.reasons.contains(&reason) => self.unreported += 1,
            Some(reason) => {
                // Attributes can have any name.
                if self.reasons.len() < MOST_REASONS {
                    self.reasons.insert(reason);
                }
                self.print(&line);
            }
            None => self.print(&line),
        }
    }

    /// Counts an owner that was not kept, or mode bits that depend on it. As
    /// with `cp -p`, that is usual for all users but root, and not reported.
    pub fn unkept(&mut self, count: u64) {
        self.account.add_unkept(count);
    }
}
