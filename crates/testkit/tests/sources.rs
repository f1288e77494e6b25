//! Rules for the sources of the workspace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files of the packages whose names end so, with their paths in the workspace.
fn sources(extensions: &[&str]) -> Vec<(String, String)> {
    let root = workspace();
    let (mut found, mut folders) = (Vec::new(), vec![root.join("crates"), root.join("bench")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                found.push((name.to_owned(), text));
            }
        }
    }
    found
}

/// The harness captures what a test prints, and `.ci/run` counts what `testkit::skip` writes.
#[test]
fn a_skip_is_reported_by_testkit() {
    const MAY: [&str; 3] = [
        "crates/cordboard-c/tests/programs/main.rs",
        "crates/cordboard/tests/common/process.rs",
        "crates/testkit/src/skip.rs",
    ];
    // Not the word itself, which this file would contain.
    let word = format!("\"{}", "skipped".to_uppercase());
    let all = sources(&["rs"])
        .into_iter()
        .filter(|(_, text)| text.contains(&word));
    let mut names: Vec<String> = all.map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, MAY);
}

/// Returns the tests that the last column of a row names: words with underscores that are
/// neither code nor a part of a path.
fn named_tests(row: &str) -> Vec<&str> {
    let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next();
    let plain = last.unwrap_or_default().split('`').step_by(2);
    let words = plain.flat_map(|text| text.split([' ', ',', ';', ':', '(', ')']));
    let is_name = |word: &&str| word.contains('_') && !word.contains(['/', '.']);
    words.filter(is_name).collect()
}

/// A name may also be that of a module, of a function in C, or an argument of a macro.
#[test]
fn the_tests_of_the_weird_cases_exist() {
    let sources = sources(&["rs", "c"]);
    let is_separator = |c: char| c != '_' && !c.is_ascii_alphanumeric();
    let words = sources
        .iter()
        .flat_map(|(_, text)| text.split(is_separator));
    let known: BTreeSet<&str> = words.collect();
    let page = std::fs::read_to_string(workspace().join("docs/weird-cases.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let named: Vec<&str> = rows.flat_map(named_tests).collect();
    assert!(named.len() > 100, "{named:?}");
    let missing = named.iter().filter(|name| !known.contains(**name));
    let missing: Vec<&&str> = missing.collect();
    assert!(missing.is_empty(), "{missing:?}");
}
