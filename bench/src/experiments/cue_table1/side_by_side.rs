//! The measured rates next to those of the paper, relative to the user-driven ones.

use std::fmt::Write as _;

use super::{AUTOMATIC, K4_T16, K4_T70, USER_DRIVEN};
use crate::harness::Bench;
use crate::harness::series::Series;
use crate::paper_cue::TABLE1;

/// The table for a place. `None` if nothing was measured there.
pub fn table(bench: &Bench, place: &str) -> Option<String> {
    let mut out = format!(
        "## Compared with the paper's table 1: {place}\n\n\
         | clients | paper, (4,16) | paper, (4,70) | (4,16) | (4,70) | automatic |\n\
         |--:|--:|--:|--:|--:|--:|\n"
    );
    let before = out.len();
    for row in TABLE1 {
        let setting = format!("{place} ×{}", row.clients);
        let Some(result) = bench.results.iter().find(|r| r.name == setting) else {
            continue;
        };
        let median = |name| result.of(name).and_then(Series::median);
        let times = |name| {
            let ratio = median(USER_DRIVEN)? / median(name)?;
            Some(format!("{ratio:.2}"))
        };
        let ours = [K4_T16, K4_T70, AUTOMATIC].map(|name| times(name).unwrap_or("–".to_owned()));
        let _ = writeln!(
            out,
            "| {} | {:.2} | {:.2} | {} |",
            row.clients,
            row.k4_t16 / row.user_driven,
            row.k4_t70 / row.user_driven,
            ours.join(" | ")
        );
    }
    let empty = out.len() == before;
    out.push_str("\nRates relative to the user-driven server with as many clients.\n");
    (!empty).then_some(out)
}
