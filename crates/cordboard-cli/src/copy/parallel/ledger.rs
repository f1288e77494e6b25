//! What there is to tell of the files, and in which order.
//!
//! Files end in any order. What went wrong is told in the order in which they
//! were come to, as if they had been copied one after the other: a problem
//! waits until nothing before it is under way any more.

use std::collections::{BTreeMap, BTreeSet};

use cordboard::{Ended, Report};

use crate::copy::outcome::{Message, Outcome};
use crate::report::{Account, Files};
use crate::session::Session;

/// What there is to tell of some files.
#[derive(Debug, Default)]
pub struct Sum {
    account: Account,
    transfers: u64,
    files: Files,
    messages: BTreeMap<usize, Vec<Message>>,
}

impl Sum {
    /// How many of them went how.
    #[cfg(test)]
    pub fn files(&self) -> Files {
        self.files
    }

    /// Adds one of them, by its number among them.
    pub fn add(&mut self, index: usize, outcome: Outcome) {
        let mut messages = outcome.messages;
        match messages.iter().any(Message::is_failure) {
            true => self.files.failed += 1,
            false if messages.iter().any(Message::is_left) => self.files.left_out = true,
            false => self.files.copied += 1,
        }
        self.account.add_verified(outcome.verified);
        // Only their number is told, and that of no one file.
        let all = messages.len();
        messages.retain(|messages| !matches!(messages, Message::Unkept));
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

/// Whether its place among the others makes a difference.
fn matters(report: &Report) -> bool {
    matches!(report.ended, Ended::Error | Ended::Cancelled)
}

/// What waits to be told.
#[derive(Debug, Default)]
pub struct Ledger {
    next: u64,
    under_way: BTreeSet<u64>,
    held: BTreeMap<u64, Vec<Message>>,
}

impl Ledger {
    /// Something begins; by this number its end is told.
    pub fn begin(&mut self) -> u64 {
        self.next += 1;
        self.under_way.insert(self.next);
        self.next
    }

    /// Its end.
    pub fn end(&mut self, session: &mut Session, number: u64, sum: Sum) {
        self.under_way.remove(&number);
        // The order of what went well makes no difference.
        session.merge(&sum.account, sum.transfers);
        session.count(sum.files.copied, sum.files.failed);
        if sum.files.left_out {
            session.left_out();
        }
        let messages: Vec<Message> = sum.messages.into_values().flatten().collect();
        if !messages.is_empty() {
            self.held.insert(number, messages);
        }
        self.tell(session);
    }

    /// What comes after all that has begun.
    pub fn messages(&mut self, session: &mut Session, messages: Vec<Message>) {
        self.next += 1;
        self.held.insert(self.next, messages);
        self.tell(session);
    }

    fn tell(&mut self, session: &mut Session) {
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        while let Some(entry) = self.held.first_entry().filter(|e| *e.key() < oldest) {
            for messages in entry.remove() {
                match messages {
                    Message::Report(report) => session.add(&report),
                    Message::Problem(problem) => session.problem(&problem),
                    Message::Repeated(problem) => session.fail(&problem),
                    // It was counted.
                    Message::LeftOut => {}
                    Message::Line(line) => session.say(&line),
                    Message::AttributeLost { line, reason } => session.without(&line, reason),
                    Message::Unkept => session.unkept(1),
                    Message::Hash(line) => session.give(&line),
                }
            }
        }
    }
}
