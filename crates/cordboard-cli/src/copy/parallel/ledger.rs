//! The messages about files, and their order.
//!
//! Files end in any order. Problems are reported in the order of the walk, as
//! if the files had been copied one after the other: a problem waits until no
//! earlier file is under way, or until too many wait.

use std::collections::{BTreeMap, BTreeSet};

use cordboard::{Ended, Report};

use crate::copy::outcome::{Message, Outcome};
use crate::report::{Account, Files};
use crate::session::Session;

/// The maximum number of batches whose messages wait. Behind a file that takes hours, all others
/// may fail.
const MOST_HELD: usize = 1000;

/// The outcomes of a batch.
#[derive(Debug, Default)]
pub struct BatchTotals {
    account: Account,
    transfers: u64,
    files: Files,
    messages: BTreeMap<usize, Vec<Message>>,
}

impl BatchTotals {
    /// The number of files by result.
    #[cfg(test)]
    pub fn files(&self) -> Files {
        self.files
    }

    /// Adds one file, by its index in the batch.
    pub fn add(&mut self, index: usize, outcome: Outcome) {
        let mut messages = outcome.messages;
        match messages.iter().any(Message::is_failure) {
            true => self.files.failed += 1,
            false if messages.iter().any(Message::is_left_out) => self.files.left_out = true,
            false => self.files.copied += 1,
        }
        self.account.add_verified(outcome.verified);
        // Only their number is reported, for all files together.
        let all = messages.len();
        messages.retain(|message| !matches!(message, Message::Unkept));
        self.account.add_unkept((all - messages.len()) as u64);
        match outcome.report {
            Some(report) if matters(&report) => {
                self.transfers += 1;
                messages.insert(0, Message::Report(report));
            }
            Some(report) => {
                self.transfers += 1;
                self.account.add(&report);
            }
            None => {}
        }
        if !messages.is_empty() {
            self.messages.insert(index, messages);
        }
    }
}

/// Whether the order of this report matters.
fn matters(report: &Report) -> bool {
    matches!(report.ended, Ended::Error | Ended::Cancelled)
}

/// The messages that wait for earlier files.
#[derive(Debug, Default)]
pub struct Ledger {
    next: u64,
    under_way: BTreeSet<u64>,
    held: BTreeMap<u64, Vec<Message>>,
}

impl Ledger {
    /// Begins a batch, and returns its number.
    pub fn begin(&mut self) -> u64 {
        self.next += 1;
        self.under_way.insert(self.next);
        self.next
    }

    /// Ends a batch.
    pub fn end(&mut self, session: &mut Session, number: u64, totals: BatchTotals) {
        self.under_way.remove(&number);
        // The order of what succeeded has no meaning.
        session.merge(&totals.account, totals.transfers);
        session.count(totals.files.copied, totals.files.failed);
        if totals.files.left_out {
            session.left_out();
        }
        let messages: Vec<Message> = totals.messages.into_values().flatten().collect();
        if !messages.is_empty() {
            self.held.insert(number, messages);
        }
        self.report(session);
    }

    /// Adds messages after all that has begun.
    pub fn add(&mut self, session: &mut Session, messages: Vec<Message>) {
        self.next += 1;
        self.held.insert(self.next, messages);
        self.report(session);
    }

    fn report(&mut self, session: &mut Session) {
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        loop {
            let is_full = self.held.len() > MOST_HELD;
            let first = self.held.first_entry();
            let Some(entry) = first.filter(|entry| is_full || *entry.key() < oldest) else {
                return;
            };
            for message in entry.remove() {
                match message {
                    Message::Report(report) => session.add(&report),
                    Message::Problem(problem) => session.problem(&problem),
                    Message::Repeated(problem) => session.fail(&problem),
                    // It was counted.
                    Message::LeftOut => {}
                    Message::Line(line) => session.print(&line),
                    Message::AttributeLost { line, reason } => {
                        session.attribute_lost(&line, reason)
                    }
                    Message::Unkept => session.unkept(1),
                    Message::Hash { line, of_file } => session.hash(line, of_file),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Common, Stages};

    #[test]
    fn messages_behind_a_long_file_are_reported_once_too_many_wait() {
        let common = Common::silent(Stages::default());
        let mut session = Session::begin(&common, "copied");
        let mut ledger = Ledger::default();
        let long = ledger.begin();
        for held in 1..=MOST_HELD {
            ledger.add(&mut session, vec![Message::LeftOut]);
            assert_eq!(ledger.held.len(), held);
        }
        ledger.add(&mut session, vec![Message::LeftOut]);
        assert_eq!(ledger.held.len(), MOST_HELD);
        ledger.end(&mut session, long, BatchTotals::default());
        assert_eq!(ledger.held.len(), 0);
    }
}
