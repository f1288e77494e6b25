//! Which paths to try for a pair, in which order, and why.
//!
//! A pure function of facts: no descriptor is touched, so every pair of kinds
//! under every set of capabilities can be tried in a test.

mod name;
mod switches;

pub use name::{BadSwitch, Declined, PathName, Why};
pub use switches::Switches;

use crate::endpoint::{Facts, Relation};
use crate::transfer::Request;

/// What this kernel and this process can do at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Capabilities {
    /// `copy_file_range(2)` that can be trusted: Linux 5.3 or later.
    pub copy_file_range: bool,
    /// A private pipe can be had.
    pub private_pipe: bool,
}

/// A path of a route, with the reason it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Which path.
    pub path: PathName,
    /// Why it suits the pair.
    pub why: &'static str,
}

/// The paths to try, in order, and those that were not taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// To be tried in this order.
    pub choices: Vec<Choice>,
    /// Not taken up, and why not.
    pub excluded: Vec<Declined>,
}

/// Everything the route depends on.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Where the bytes come from.
    pub source: &'a Facts,
    /// Where they go.
    pub sink: &'a Facts,
    /// How the two are related.
    pub relation: Relation,
    /// What was asked for.
    pub request: &'a Request,
}
