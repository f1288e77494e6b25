//! Children of a process without a page that `fork(2)` wipes: before Linux 4.14, and where a filter
//! refuses the advice (`MADV_WIPEONFORK`). A child is distinguished by its process ID.

use std::process::{Command, Stdio};

use testkit::owned::Start;

use crate::common::{self, watchdog};

/// What a child must not take over from its parent: engines, pipes, budgets, waits. A child that is
/// forked right before a sleep may sleep for a minute without the page (`sys/event.rs`).
const TESTS: [&str; 6] = [
    "forks::a_child_has_a_pipe_budget_of_its_own",
    "forks::a_child_keeps_none_of_its_parents_pipes",
    "forks::a_child_that_closes_everything_drops_what_it_inherits",
    "forks::a_child_that_closes_everything_keeps_its_own_files",
    "forks::inherited::a_child_keeps_no_end_of_its_parents_transfers",
    "forks::inherited::a_child_that_is_forked_in_a_shutdown_does_not_wait",
];

#[test]
fn a_child_takes_nothing_over_without_the_wiped_page() {
    let _dog = watchdog("a_child_takes_nothing_over_without_the_wiped_page");
    testkit::owned::watching();
    let child = testkit::refuse::apart(|| {
        testkit::refuse::refuse(&[libc::SYS_madvise], libc::EINVAL);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(TESTS).args(["--exact", "--test-threads=1"]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.start()
    });
    let passed = format!("{} passed", TESTS.len());
    common::passes(child, &passed);
}
