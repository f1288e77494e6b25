//! `docs/paths.md` says what is so.

use super::cell::{Cell, Run, by_library};
use cordboard::Switches;
use testkit::table::{self, Entry};
use testkit::{matrix, skip, watchdog};

fn document() -> Option<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/paths.md");
    std::fs::read_to_string(path).ok()
}

/// What the table would say now, the ratio aside.
fn now(run: &Run) -> Result<String, String> {
    match run.failed {
        None => {
            let names: Vec<&str> = run.path.iter().map(|path| path.name()).collect();
            Ok(names.join("+"))
        }
        Some((_, errno)) => Err(format!("{:?}", cordboard::Errno::from_raw(errno))),
    }
}

#[test]
fn the_table_of_paths_is_true() {
    let Some(text) = document() else {
        return skip::report("docs/paths.md", "not generated yet");
    };
    let entries = table::parse(&text).expect("a table with every row and column");
    let mut wrong = Vec::new();
    for (source, sink, entry) in entries {
        let name = format!("{} -> {}", source.name(), sink.name());
        if let Some(why) = matrix::unavailable(source, sink) {
            skip::report(&name, &why);
            continue;
        }
        let cell = Cell {
            source,
            sink,
            size: matrix::bounded(source, sink, matrix::TABLE_SIZE),
            nonblocking: false,
        };
        let _watched = watchdog::watch(cell.to_string());
        let found = now(&by_library(&cell, Switches::all()));
        match (&entry, found) {
            (Entry::Moved { path, .. }, Ok(taken)) if *path == taken => {}
            (Entry::FailsAlike(errno), Err(found)) if *errno == found => {}
            (entry, found) => wrong.push(format!("{name}: it says `{entry}`, now: {found:?}")),
        }
    }
    super::report(&wrong);
}
