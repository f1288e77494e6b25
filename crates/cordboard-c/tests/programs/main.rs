//! The library as C programs use it: installed into a prefix by `make` and
//! found by pkg-config. The programs are compiled by the system's compiler with
//! every warning an error, and run under valgrind, or with the compiler's
//! sanitizers if valgrind does not run.

mod examples;
mod install;
mod prefix;
mod program;

use program::{Language, Program};

/// Runs one test as C, and compiles it as C++. Programs that fork are not
/// checked for leaks.
fn passes(name: &str, forks: bool) {
    let Some(program) = Program::test(name, Language::C, forks) else {
        return;
    };
    let run = program.checked().output().expect("it runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {}\n{stderr}", run.status);
    for line in stderr.lines() {
        if let Some((what, reason)) = skipped(line) {
            testkit::skip::report(what, reason);
        }
    }
    Program::test(name, Language::Cpp, forks);
}

/// The test that a program reports as skipped, and the reason.
fn skipped(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("SKIPPED: ")?.split_once(": ")
}

#[test]
fn splice() {
    passes("splice", false);
}

#[test]
fn handles() {
    passes("handles", false);
}

#[test]
fn step() {
    passes("step", false);
}

#[test]
fn fasync() {
    passes("fasync", false);
}

#[test]
fn blind() {
    passes("blind", false);
}

#[test]
fn first_thread() {
    passes("first_thread", false);
}

#[test]
fn owners() {
    passes("owners", true);
}

#[test]
fn many() {
    passes("many", false);
}

#[test]
fn threads() {
    passes("threads", false);
}

#[test]
fn stack() {
    passes("stack", false);
}

#[test]
fn fork() {
    passes("fork", true);
}

#[test]
fn classic() {
    passes("classic", false);
}

#[test]
fn cue() {
    passes("cue", false);
}
