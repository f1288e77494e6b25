//! Checks `docs/paths.md`.

use super::cell::{Cell, Run, by_library};
use cordboard::{Switches, Tune};
use testkit::filesystem::{EXT4, temporary_kind};
use testkit::needs::{self, Need};
use testkit::table::{self, Entry};
use testkit::{SinkKind, SourceKind, matrix, skip, watchdog};

fn document() -> Option<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/paths.md");
    std::fs::read_to_string(path).ok()
}

/// Returns the present content of a cell, without the ratio.
fn now(run: &Run) -> Result<String, String> {
    match run.failed {
        None => {
            let names: Vec<&str> = run.path.iter().map(|path| path.name()).collect();
            Ok(names.join("+"))
        }
        Some((_, errno)) => Err(format!("{:?}", cordboard::Errno::from_raw(errno))),
    }
}

/// Returns the paths whose call is refused here. The table is that of a kernel with
/// all paths.
fn closed() -> Vec<&'static str> {
    let all = [
        ("copy_file_range", Need::CopyFileRange),
        ("sendfile", Need::Sendfile),
        ("splice", Need::Splice),
    ];
    let test = |path: &str| format!("the_table_of_paths_is_true, of {path}");
    let closed = all
        .into_iter()
        .filter(|(path, need)| needs::missing(&test(path), &[*need]));
    closed.map(|(path, _)| path).collect()
}

/// Whether one of these paths has carried bytes.
fn takes(path: &str, closed: &[&str]) -> bool {
    path.split('+').any(|name| closed.contains(&name))
}

/// Returns the path that replaces this one on a kernel whose `/dev/zero` does not
/// support `splice(2)`: zeros are read, and bytes to it are written.
fn instead(source: SourceKind, sink: SinkKind, path: &str) -> Option<&'static str> {
    match (source, sink, path) {
        (SourceKind::Zero, _, "splice") | (_, SinkKind::Zero, "splice") => Some("read/write"),
        (_, SinkKind::Zero, "sendfile") => Some("splice+read/write"),
        _ => None,
    }
}

/// Whether one of these is in the temporary directory.
fn is_temporary(source: SourceKind, sink: SinkKind) -> bool {
    use SourceKind::{Direct, File, Sparse};
    matches!(source, File | Sparse | Direct)
        || matches!(sink, SinkKind::File | SinkKind::Append | SinkKind::Direct)
}

#[test]
fn the_table_of_paths_is_true() {
    let Some(text) = document() else {
        return skip::report("docs/paths.md", "not generated yet");
    };
    let entries = table::parse(&text).expect("a table with every row and column");
    let closed = closed();
    let has_zero_pages = Need::ZeroPages.is_met();
    // That of the table was. Another file system may share blocks, or be in memory, and has
    // another order of paths.
    let has_ext4 = temporary_kind() == EXT4;
    if !has_ext4 {
        let what = "the_table_of_paths_is_true, of files in the temporary directory";
        skip::report(what, "it is not on ext4");
    }
    let mut wrong = Vec::new();
    for (source, sink, entry) in entries {
        let name = format!("{} -> {}", source.name(), sink.name());
        if let Some(why) = matrix::unavailable(source, sink) {
            skip::report(&name, &why);
            continue;
        }
        if !has_ext4 && is_temporary(source, sink) {
            continue;
        }
        let cell = Cell {
            source,
            sink,
            size: matrix::bounded(source, sink, matrix::TABLE_SIZE),
            nonblocking: false,
        };
        let _watched = watchdog::watch(cell.to_string());
        let found = now(&by_library(&cell, Switches::all(), Tune::On));
        match (&entry, found) {
            (Entry::Moved { path, .. }, Ok(taken)) if *path == taken => {}
            // Another path carries everything, and the report does not name the
            // refused one.
            (Entry::Moved { path, .. }, Ok(taken))
                if takes(path, &closed) && !takes(&taken, &closed) => {}
            (Entry::Moved { path, .. }, Ok(taken))
                if !has_zero_pages && instead(source, sink, path) == Some(&taken) => {}
            (Entry::FailsAlike(errno), Err(found)) if *errno == found => {}
            (entry, found) => wrong.push(format!("{name}: it says `{entry}`, now: {found:?}")),
        }
    }
    super::report(&wrong);
}
