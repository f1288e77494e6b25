//! The names of the columns that the papers' table 1 has.

/// The rate of the test program, in percent of its rate on an idle machine: the
/// form of the conference paper.
pub const PERCENT: &str = "% of idle";
/// The slowdown of the test program: the form of the technical report.
pub const SLOWDOWN: &str = "F";
/// The report's improvement over CP, for the same number of operations.
pub const IMPROVEMENT: &str = "I";
