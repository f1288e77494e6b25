use super::*;

const S: Duration = Duration::from_secs(1);

fn known(count: u64) -> Option<Known> {
    Some(Known {
        count,
        is_all: true,
    })
}

fn frame() -> Frame {
    Frame {
        bytes: 1 << 30,
        total: known(4 << 30),
        rate: 512 << 20,
        left: Some(6 * S),
        elapsed: 2 * S,
        paused: false,
        path: DataPath::Splice,
        under_way: 1,
        files: None,
        sinks: None,
        buffered: None,
        read_back: None,
    }
}

fn tree(is_all: bool) -> Frame {
    let all = |count| Some(Known { count, is_all });
    Frame {
        total: all(4 << 30),
        left: is_all.then_some(6 * S),
        files: Some(FilesDone {
            done: 120,
            known: all(12_000),
        }),
        under_way: 2,
        ..frame()
    }
}

#[test]
fn at_each_width() {
    let buffered = Frame {
        total: None,
        left: None,
        buffered: Some((12 << 20, 64 << 20)),
        ..frame()
    };
    let frames = [
        (
            frame(),
            [
                "1.0 GiB of 4.0 GiB",
                "1.0 GiB of 4.0 GiB (25 %)  left 0:06",
                "1.0 GiB of 4.0 GiB (25 %)  512 MiB/s  elapsed 0:02  left 0:06  by splice",
                "1.0 GiB of 4.0 GiB (25 %)  512 MiB/s  elapsed 0:02  left 0:06  by splice",
            ],
        ),
        (
            tree(true),
            [
                "1.0 GiB of 4.0 GiB",
                "1.0 GiB of 4.0 GiB (25 %)  left 0:06",
                "1.0 GiB of 4.0 GiB (25 %)  120 of 12,000 files  512 MiB/s  left 0:06",
                "1.0 GiB of 4.0 GiB (25 %)  120 of 12,000 files  512 MiB/s  elapsed 0:02  \
                 left 0:06  by splice  2 files at once",
            ],
        ),
        (
            tree(false),
            [
                "1.0 GiB of 4.0+ GiB",
                "1.0 GiB of 4.0+ GiB  512 MiB/s",
                "1.0 GiB of 4.0+ GiB  120 of 12,000+ files  512 MiB/s  elapsed 0:02  by splice",
                "1.0 GiB of 4.0+ GiB  120 of 12,000+ files  512 MiB/s  elapsed 0:02  \
                 by splice  2 files at once",
            ],
        ),
        (
            buffered,
            [
                "1.0 GiB  512 MiB/s",
                "1.0 GiB  512 MiB/s  elapsed 0:02",
                "1.0 GiB  512 MiB/s  elapsed 0:02  buffer 12 MiB of 64 MiB  by splice",
                "1.0 GiB  512 MiB/s  elapsed 0:02  buffer 12 MiB of 64 MiB  by splice",
            ],
        ),
    ];
    for (frame, lines) in frames {
        for (width, line) in [20, 40, 80, 120].into_iter().zip(lines) {
            assert_eq!(frame.line(width), line, "{width}");
        }
        for width in 0..130 {
            let line = frame.line(width);
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert_eq!(line.is_empty(), width < NARROWEST, "{width}: {line}");
        }
    }
}

#[test]
fn the_slowest_of_several_sinks() {
    let of = |attached, all| Frame {
        sinks: Some(SinksAttached { attached, all }),
        ..frame()
    };
    let line = of(3, 3).line(120);
    assert!(
        line.ends_with("left 0:06  slowest of 3 sinks  by splice"),
        "{line}"
    );
    let line = of(2, 3).line(120);
    let end = "  slowest of 2 sinks, 3 at first  by splice";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn few_columns() {
    for (width, line) in [
        (0, ""),
        (10, ""),
        (11, "1.0 GiB"),
        (17, "1.0 GiB"),
        (18, "1.0 GiB of 4.0 GiB"),
        (25, "1.0 GiB of 4.0 GiB (25 %)"),
    ] {
        assert_eq!(frame().line(width), line, "{width}");
    }
    let most = Frame {
        bytes: 1023,
        total: None,
        ..frame()
    };
    assert_eq!(most.line(NARROWEST), "1023 bytes");
}

#[test]
fn an_unknown_size_a_false_one_a_stall_and_a_pause() {
    let unknown = Frame {
        total: None,
        left: None,
        ..frame()
    };
    let line = unknown.line(80);
    assert_eq!(line, "1.0 GiB  512 MiB/s  elapsed 0:02  by splice");
    let more = Frame {
        total: known(5),
        ..frame()
    };
    assert!(more.line(80).contains("of 5 bytes (100 %)  512 MiB/s"));
    let stalled = Frame {
        rate: 0,
        left: None,
        ..frame()
    };
    let line = stalled.line(80);
    assert!(line.contains("(25 %)  0 B/s  elapsed 0:02  by"), "{line}");
    let paused = Frame {
        paused: true,
        ..stalled
    };
    assert!(paused.line(80).contains("0 B/s  elapsed 0:02  paused  by"));
    assert_eq!(paused.line(40), "1.0 GiB of 4.0 GiB (25 %)  0 B/s  paused");
}

#[test]
fn the_files_of_a_tree() {
    let files = |done, known| FilesDone { done, known }.text();
    assert_eq!(files(1, None), "1 file");
    assert_eq!(files(1200, None), "1,200 files");
    assert_eq!(files(3, known(7)), "3 of 7 files");
    assert_eq!(files(0, known(1)), "0 of 1 file");
    // A directory that could not be read has failed too, and is not counted before.
    assert_eq!(files(8, known(7)), "8 of 8 files");
}

#[test]
fn a_number_that_may_grow_has_a_plus() {
    let five = Known {
        count: 5,
        is_all: false,
    };
    assert_eq!(at_least(five), "5+ bytes");
}

#[test]
fn as_dd_tells() {
    let line = requested_line(2 << 20, S, DataPath::Splice, None, None, None);
    assert_eq!(
        line,
        "2097152 bytes (2.0 MiB) written, 1.0 s, 2.0 MiB/s, path splice\n"
    );
    let line = requested_line(0, Duration::ZERO, DataPath::ReadWrite, None, None, None);
    assert!(line.starts_with("0 bytes written"));
    let buffered = Some((12 << 20, 64 << 20));
    let files = tree(false).files;
    let line = requested_line(1, S, DataPath::Splice, files, buffered, Some(7));
    let end = "1 B/s, 120 of 12,000+ files, path splice, buffer 12 MiB of 64 MiB, \
               7 bytes verified\n";
    assert!(line.ends_with(end), "{line}");
    assert!(line.starts_with("1 byte written, "), "{line}");
}
