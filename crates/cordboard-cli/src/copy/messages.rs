//! What there is to tell of the files, and in which order.
//!
//! Files end in any order. What went wrong is told in the order in which they
//! were come to, as if they had been copied one after the other: a problem
//! waits until nothing before it is under way any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cordboard::{Ended, Report};

use crate::problem::Problem;
use crate::report::{Account, Files};
use crate::session::Session;
use crate::stages::SumLine;

/// Something to tell.
#[derive(Debug)]
pub enum Said {
    /// A transfer that did not go well.
    Report(Report),
    /// What went wrong.
    Problem(Problem),
    /// What went wrong for a reason that was told before.
    Again(Problem),
    /// It was left out, since nothing more can be written.
    LeftOut,
    /// A line that changes nothing about the outcome.
    Line(String),
    /// An attribute that a copy does without.
    Without {
        /// What is told of it.
        line: String,
        /// Why, where others are without it for the same reason: they are
        /// counted, and one is told.
        reason: Option<String>,
    },
    /// An owner, or bits of the mode, that a copy does without: counted.
    Unkept,
    /// A hash.
    Sum(SumLine),
}

impl Said {
    /// Whether what it is about has failed.
    pub fn is_failure(&self) -> bool {
        match self {
            Said::Problem(problem) | Said::Again(problem) => !problem.is_a_stop(),
            _ => false,
        }
    }

    /// Whether it was not begun, or not brought to its end.
    fn is_left(&self) -> bool {
        match self {
            Said::Problem(problem) => problem.is_a_stop(),
            said => matches!(said, Said::LeftOut),
        }
    }
}

impl From<String> for Said {
    fn from(line: String) -> Said {
        Said::Line(line)
    }
}

impl From<fmt::Arguments<'_>> for Said {
    fn from(line: fmt::Arguments<'_>) -> Said {
        Said::Line(line.to_string())
    }
}

impl From<SumLine> for Said {
    fn from(line: SumLine) -> Said {
        Said::Sum(line)
    }
}

/// What there is to tell of one file.
#[derive(Debug, Default)]
pub struct Told {
    /// What was moved, if it was tried.
    pub report: Option<Report>,
    /// Bytes that were read back and found to be the same.
    pub verified: Option<u64>,
    /// The rest, in its order.
    pub said: Vec<Said>,
}

impl Told {
    /// A line, after what there is to tell already.
    pub fn line(&mut self, line: impl Into<Said>) {
        self.said.push(line.into());
    }
}

/// What there is to tell of some files.
#[derive(Debug, Default)]
pub struct Sum {
    account: Account,
    transfers: u64,
    files: Files,
    said: BTreeMap<usize, Vec<Said>>,
}

impl Sum {
    /// How many of them went how.
    #[cfg(test)]
    pub fn files(&self) -> Files {
        self.files
    }

    /// Adds one of them, by its number among them.
    pub fn add(&mut self, index: usize, told: Told) {
        let mut said = told.said;
        match said.iter().any(Said::is_failure) {
            true => self.files.failed += 1,
            false if said.iter().any(Said::is_left) => self.files.left_out = true,
            false => self.files.copied += 1,
        }
        self.account.add_verified(told.verified);
        // Only their number is told, and that of no one file.
        let all = said.len();
        said.retain(|said| !matches!(said, Said::Unkept));
        self.account.add_unkept((all - said.len()) as u64);
        match told.report {
            Some(report) if matters(&report) => {
                self.transfers += 1;
                said.insert(0, Said::Report(report));
            }
            Some(report) => {
                self.transfers += 1;
                self.account.add(&report);
            }
            None => {}
        }
        if !said.is_empty() {
            self.said.insert(index, said);
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
    held: BTreeMap<u64, Vec<Said>>,
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
        let said: Vec<Said> = sum.said.into_values().flatten().collect();
        if !said.is_empty() {
            self.held.insert(number, said);
        }
        self.tell(session);
    }

    /// What comes after all that has begun.
    pub fn said(&mut self, session: &mut Session, said: Vec<Said>) {
        self.next += 1;
        self.held.insert(self.next, said);
        self.tell(session);
    }

    fn tell(&mut self, session: &mut Session) {
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        while let Some(entry) = self.held.first_entry().filter(|e| *e.key() < oldest) {
            for said in entry.remove() {
                match said {
                    Said::Report(report) => session.add(&report),
                    Said::Problem(problem) => session.problem(&problem),
                    Said::Again(problem) => session.fail(&problem),
                    // It was counted.
                    Said::LeftOut => {}
                    Said::Line(line) => session.say(&line),
                    Said::Without { line, reason } => session.without(&line, reason),
                    Said::Unkept => session.unkept(1),
                    Said::Sum(line) => session.give(&line),
                }
            }
        }
    }
}
