//! Every source with every sink. If a plain read/write loop works, the library must
//! work too, with the same result. If the loop fails, the library must fail in the
//! same way or do better. The counts must be right in each case. These tests are a
//! program of their own because they take hours under a sanitizer.

mod cell;
mod large;
mod rules;
mod table;

use cell::{Cell, by_library, by_model, by_steps};
use cordboard::{DataPath, Switches, Tune};
use testkit::{SinkKind, SourceKind, matrix, skip, watchdog};

/// Runs one cell by both and returns what is wrong with the library's result.
fn wrong(cell: &Cell, switches: Switches) -> Option<String> {
    let _watched = watchdog::watch(cell.to_string());
    let model = by_model(cell);
    let library = by_library(cell, switches, Tune::On);
    rules::check(cell, &model, &library)
        .err()
        .map(|wrong| format!("{cell}: {wrong}\n      model:   {model}\n      library: {library}"))
}

/// Returns all available sinks for one source.
fn sinks(source: SourceKind) -> Vec<SinkKind> {
    let mut sinks = Vec::new();
    for sink in SinkKind::ALL.iter().copied() {
        match matrix::unavailable(source, sink) {
            Some(why) => skip::report(&format!("{} -> {}", source.name(), sink.name()), &why),
            None => sinks.push(sink),
        }
    }
    sinks
}

fn report(wrong: &[String]) {
    let list = wrong.join("\n  ");
    assert!(wrong.is_empty(), "{} wrong:\n  {list}", wrong.len());
}

/// Tests every size, blocking and not, by the route that the library chooses.
fn every_size(source: SourceKind) {
    let mut found = Vec::new();
    for sink in sinks(source) {
        let mut sizes = matrix::SIZES
            .map(|size| matrix::bounded(source, sink, size))
            .to_vec();
        sizes.dedup();
        for size in sizes {
            for nonblocking in [false, true] {
                let cell = Cell {
                    source,
                    sink,
                    size,
                    nonblocking,
                };
                found.extend(wrong(&cell, Switches::all()));
            }
        }
    }
    report(&found);
}

/// Disables the path that was taken until only read/write is left. Then forces each
/// path, which may refuse but must not lose bytes.
fn every_path(source: SourceKind) {
    let mut found = Vec::new();
    for sink in sinks(source) {
        let cell = Cell {
            source,
            sink,
            size: matrix::bounded(source, sink, 65_537),
            nonblocking: false,
        };
        let _watched = watchdog::watch(cell.to_string());
        let model = by_model(&cell);
        let mut switches = Switches::all();
        while switches.allows(DataPath::ReadWrite) {
            let library = by_library(&cell, switches, Tune::On);
            if let Err(wrong) = rules::check(&cell, &model, &library) {
                found.push(format!("{cell}: {wrong} under {switches:?}: {library}"));
            }
            let Some(last) = library.path.last() else {
                break;
            };
            for path in &library.path {
                if !switches.allows(*path) {
                    found.push(format!("{cell}: {path} was taken, and is turned off"));
                }
            }
            switches = switches.without(*last);
        }
        for path in DataPath::ALL.iter().copied() {
            let library = by_library(&cell, Switches::only(&[path]), Tune::On);
            if let Err(wrong) = rules::check_forced(path, &library) {
                found.push(format!("{cell}: {wrong} with {path} forced: {library}"));
            }
        }
    }
    report(&found);
}

/// Changes the path and the size of its calls after each step.
fn every_step(source: SourceKind) {
    let mut found = Vec::new();
    let mut changed = 0;
    for sink in sinks(source) {
        for (size, nonblocking) in [(300_001, false), (1_000_003, true)] {
            let cell = Cell {
                source,
                sink,
                size: matrix::bounded(source, sink, size),
                nonblocking,
            };
            let _watched = watchdog::watch(cell.to_string());
            let library = by_library(&cell, Switches::all(), Tune::EachStep);
            changed += usize::from(library.path.len() > 1);
            if let Err(wrong) = rules::check(&cell, &by_model(&cell), &library) {
                found.push(format!("{cell}: {wrong}: {library}"));
            }
        }
    }
    report(&found);
    // Without splice(2) there is only one path.
    let stream = matches!(source, SourceKind::Tcp | SourceKind::UnixStream);
    let changes = stream && testkit::needs::Need::Splice.is_met();
    assert!(!changes || changed > 2, "{changed} transfers have changed");
}

/// The caller's event loop drives the transfer.
fn stepped(source: SourceKind) {
    let mut found = Vec::new();
    for sink in sinks(source) {
        for (size, nonblocking) in [(0, false), (65_537, true), (300_001, false)] {
            let cell = Cell {
                source,
                sink,
                size: matrix::bounded(source, sink, size),
                nonblocking,
            };
            let _watched = watchdog::watch(cell.to_string());
            let library = by_steps(&cell);
            if let Err(wrong) = rules::check(&cell, &by_model(&cell), &library) {
                found.push(format!("{cell}: {wrong}: {library}"));
            }
        }
    }
    report(&found);
}

macro_rules! rows {
    ($($test:ident $kind:ident)*) => {
        mod every_size {
            $(#[test] fn $test() { super::every_size(testkit::SourceKind::$kind); })*
        }
        mod every_path {
            $(#[test] fn $test() { super::every_path(testkit::SourceKind::$kind); })*
        }
        mod every_step {
            $(#[test] fn $test() { super::every_step(testkit::SourceKind::$kind); })*
        }
        mod stepped {
            $(#[test] fn $test() { super::stepped(testkit::SourceKind::$kind); })*
        }
        #[test]
        fn every_source_has_its_row() {
            let rows = [$(SourceKind::$kind),*];
            assert_eq!(rows.as_slice(), SourceKind::ALL);
        }
    };
}

testkit::each_source!(rows);
