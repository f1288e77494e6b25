//! The line of progress, on terminals of several widths.
#![allow(missing_docs)]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use common::*;
use rustix::process::Signal;
use testkit::needs::Need;

/// A command that draws on a terminal.
struct Drawing {
    child: Owned,
    master: File,
    screen: String,
    columns: u16,
}

fn drawing(columns: u16, command: &mut Command) -> Drawing {
    let (master, terminal) = terminal_of(columns);
    let child = command.stdout(Stdio::piped()).stderr(terminal).start();
    // A copy of the terminal, which would hide its end.
    command.stderr(Stdio::null());
    Drawing {
        child,
        master,
        screen: String::new(),
        columns,
    }
}

impl Drawing {
    /// Reads until a whole line has all of these, and returns it. No line is wider than
    /// the terminal.
    fn line_with(&mut self, texts: &[&str]) -> String {
        loop {
            let lines = self.screen.split('\r').filter_map(|line| {
                let (line, _) = line.split_once("\x1b[K")?;
                assert!(line.len() < usize::from(self.columns), "{line}");
                Some(line)
            });
            let mut lines = lines.filter(|line| texts.iter().all(|text| line.contains(text)));
            if let Some(line) = lines.next() {
                return line.to_owned();
            }
            assert!(more(&mut self.master, &mut self.screen), "{}", self.screen);
        }
    }

    /// Ends the command.
    fn stop(mut self) {
        signal(self.child.id(), Signal::TERM);
        drop(self.child.stdout.take());
        while more(&mut self.master, &mut self.screen) {}
        assert_eq!(self.child.wait().unwrap().code(), Some(143));
    }
}

/// With `TERM=dumb`, a line that is drawn again would be one long line with escape sequences.
#[test]
fn a_terminal_without_escape_sequences_gets_no_line() {
    let args = [
        "splice",
        "/dev/zero",
        "/dev/null",
        "--size",
        "2M",
        "--rate",
        "4M",
    ];
    for (term, is_drawn) in [("xterm", true), ("dumb", false)] {
        let mut command = cordboard();
        let mut splice = drawing(80, command.args(args).env("TERM", term));
        while more(&mut splice.master, &mut splice.screen) {}
        assert_eq!(splice.child.wait().unwrap().code(), Some(0));
        assert_eq!(
            splice.screen.contains('\x1b'),
            is_drawn,
            "{:?}",
            splice.screen
        );
    }
}

/// The reader of the pipe may draw on the same terminal.
#[test]
fn cat_into_a_pipe_draws_only_on_request() {
    let folder = dir();
    let from = file(&folder, "from", &bytes(2 << 20));
    let file = || Stdio::from(File::create(folder.path().join("to")).unwrap());
    for (progress, stdout, is_drawn) in [
        ("auto", Stdio::piped(), false),
        ("always", Stdio::piped(), true),
        ("auto", file(), true),
    ] {
        let (mut master, terminal) = terminal_of(80);
        let mut command = cordboard();
        command.args(["cat", "--rate", "4M", "--progress", progress]);
        command.arg(&from).stdout(stdout).stderr(terminal);
        let mut cat = command.start();
        drop(command);
        let pipe = cat.stdout.take();
        let reading = pipe.map(|pipe| {
            std::thread::spawn(move || std::io::copy(&mut { pipe }, &mut std::io::sink()))
        });
        let mut screen = String::new();
        while more(&mut master, &mut screen) {}
        assert_eq!(cat.wait().unwrap().code(), Some(0));
        if let Some(reading) = reading {
            reading.join().unwrap().unwrap();
        }
        assert_eq!(screen.contains('\x1b'), is_drawn, "{progress}: {screen:?}");
    }
}

#[test]
fn lines_for_logs_come_while_it_runs_and_at_the_end() {
    let args = ["/dev/zero", "/dev/null", "--size", "1T", "--rate", "1M"];
    let child = cordboard()
        .args(["splice", "--progress", "lines"])
        .args(args)
        .stderr(Stdio::piped())
        .start();
    let lines = lines_until_stopped(child);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines.len() >= 3, "{lines:?}");
    let (last, shown) = lines.split_last().unwrap();
    for line in shown {
        assert!(line.contains(" of 1.0 TiB (0 %)  "), "{line}");
        assert!(line.contains("  elapsed 0:0"), "{line}");
        assert!(line.len() <= 79, "{line}");
    }
    assert!(last.starts_with("cordboard: interrupted by "), "{last}");
}

/// The operands are counted before the first line.
#[test]
fn lines_for_logs_have_the_share_of_a_tree() {
    if let Some(reason) = Need::CloseRange.unmet() {
        testkit::skip::here(&reason);
        return;
    }
    let folder = dir();
    let mut child = cordboard()
        .args(["copy", "-r", "--rate", "2000", "--progress", "lines"])
        .args([tree(folder.path()), folder.path().join("to")])
        .stderr(Stdio::piped())
        .start();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains(" of 391 KiB ("), "{line}");
    assert!(line.contains(" of 41 files  "), "{line}");
    signal(child.id(), Signal::TERM);
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// The totals are the last line, also of a short transfer, and of cat.
#[test]
fn lines_for_logs_end_with_the_totals() {
    let folder = dir();
    let from = file(&folder, "from", &bytes(2048));
    let to = folder.path().join("to");
    let words = [
        (
            vec!["splice".as_ref(), from.as_os_str(), to.as_os_str()],
            "moved",
        ),
        (
            vec!["copy".as_ref(), from.as_os_str(), to.as_os_str()],
            "copied",
        ),
        (vec!["cat".as_ref(), from.as_os_str()], "written"),
    ];
    for (words, verb) in words {
        let done = run(cordboard().args(words).args(["--progress", "lines"]));
        let stderr = done.ok().stderr();
        assert!(
            stderr.starts_with(&format!("{verb} 2.0 KiB in ")),
            "{stderr}"
        );
        assert!(
            stderr.ends_with('\n') && stderr.lines().count() == 1,
            "{stderr}"
        );
        assert!(!stderr.contains(['\r', '\x1b']), "{stderr}");
    }
}

/// A tree of 40 files of 10000 bytes, and a symlink.
fn tree(folder: &Path) -> std::path::PathBuf {
    let tree = folder.join("tree");
    for n in 0..4 {
        let into = tree.join(n.to_string());
        std::fs::create_dir_all(&into).unwrap();
        for n in 0..10 {
            std::fs::write(into.join(n.to_string()), bytes(10_000)).unwrap();
        }
    }
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
    tree
}

#[test]
fn a_tree_shows_its_files_and_its_share() {
    // Without it, the operands are not counted.
    if let Some(reason) = Need::CloseRange.unmet() {
        testkit::skip::here(&reason);
        return;
    }
    for (jobs, columns) in [("1", 120), ("2", 120), ("2", 80), ("2", 40)] {
        let folder = dir();
        let args = ["copy", "-r", "--rate", "2000", "--jobs", jobs];
        let mut copy = drawing(
            columns,
            cordboard()
                .args(args)
                .arg(tree(folder.path()))
                .arg(folder.path().join("to")),
        );
        match columns {
            40 => copy.line_with(&[" of 391 KiB (", " %)  left "]),
            80 => copy.line_with(&[" of 391 KiB (", " %)  ", " of 41 files  ", "  left "]),
            _ => copy.line_with(&[
                " of 391 KiB (",
                " %)  ",
                " of 41 files  ",
                "  elapsed 0:0",
                "  left ",
                "  by ",
            ]),
        };
        copy.stop();
    }
}

/// The bytes are not those of the files if they are packed, but the files are.
#[test]
fn files_that_are_packed_are_counted() {
    let folder = dir();
    let args = ["copy", "-r", "--zstd", "--rate", "2000", "--jobs", "2"];
    let mut copy = drawing(
        120,
        cordboard()
            .args(args)
            .arg(tree(folder.path()))
            .arg(folder.path().join("to")),
    );
    let line = copy.line_with(&[" files  "]);
    assert!(!line.contains(" %"), "{line}");
    copy.stop();
}

#[test]
fn cat_counts_its_files() {
    let folder = dir();
    let files = ["a", "b", "c"].map(|name| file(&folder, name, &bytes(10_000)));
    let words = ["cat", "--rate", "2000", "--progress", "always"];
    let mut cat = drawing(80, cordboard().args(words).args(&files));
    match Need::CloseRange.is_met() {
        true => cat.line_with(&[" of 29 KiB (", "0 of 3 files  "]),
        false => cat.line_with(&["0 files  "]),
    };
    cat.stop();
}

/// The wait for the next file begins behind the line of the one before.
#[test]
fn a_line_that_is_requested_during_a_wait_replaces_the_one_that_is_drawn() {
    let folder = dir();
    let from = file(&folder, "from", &bytes(10_000));
    let waits = folder.path().join("waits");
    let mut cat = drawing(
        80,
        cordboard()
            .args(["cat", "--rate", "10000", "--progress", "always"])
            .arg(&from)
            .arg(fifo(&waits)),
    );
    cat.line_with(&["  elapsed "]);
    let pid = cat.child.id();
    until("the end of the first file", || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut files = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        (!files.any(|file| file == from)).then_some(())
    });
    signal(pid, Signal::USR1);
    let says = "10000 bytes written: still waiting for an endpoint";
    while !cat.screen.contains(says) {
        assert!(more(&mut cat.master, &mut cat.screen), "{}", cat.screen);
    }
    let (before, _) = cat.screen.split_once(says).unwrap();
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    cat.stop();
}

/// Without a line that is drawn, the files that have ended are counted too.
#[test]
fn a_line_that_is_requested_has_the_files() {
    let folder = dir();
    let files = ["a", "b"].map(|name| file(&folder, name, &bytes(10_000)));
    let mut command = cordboard();
    // The first file takes longer than any wait for the line.
    command.args(["cat", "--rate", "10", "--progress", "never"]);
    let mut cat = piped(command.args(&files));
    let stdout = cat.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    signal(cat.id(), Signal::USR1);
    let mut line = String::new();
    let mut stderr = BufReader::new(cat.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains(", 0 files, path "), "{line}");
    signal(cat.id(), Signal::TERM);
    drop(cat.stdout.take());
    assert_eq!(cat.wait().unwrap().code(), Some(143));
}

#[test]
fn several_sinks_show_the_slowest() {
    let args = ["splice", "/dev/zero", "/dev/null", "-", "--size", "1G"];
    let mut splice = drawing(120, cordboard().args(args));
    // Nothing is read from the pipe.
    let texts = [" of 1.0 GiB (", "  slowest of 2 sinks  by "];
    let line = splice.line_with(&texts);
    assert!(!line.contains("(100 %)"), "{line}");
    splice.stop();
}

#[test]
fn a_sink_that_was_detached_is_not_counted() {
    let args = [
        "splice",
        "/dev/zero",
        "/dev/null",
        "-",
        "--on-slow",
        "detach",
    ];
    let mut splice = drawing(120, cordboard().args(args));
    splice.line_with(&["  slowest of 1 sink, 2 at first"]);
    signal(splice.child.id(), Signal::TERM);
    drop(splice.child.stdout.take());
    while more(&mut splice.master, &mut splice.screen) {}
    splice.child.wait().unwrap();
}

#[test]
fn a_pause_is_shown_and_has_no_time_left() {
    let folder = dir();
    let from = file(&folder, "from", &bytes(100_000));
    let socket = folder.path().join("control");
    let mut splice = drawing(
        120,
        cordboard()
            .args(["splice", "--rate", "2000", "--control"])
            .args([&socket, &from, Path::new("/dev/null")]),
    );
    splice.line_with(&["  left "]);
    let paused = run(cordboard().arg("cue").arg(&socket).arg("pause"));
    assert_eq!(paused.code(), 0, "{}", paused.stderr());
    let line = splice.line_with(&["  paused  "]);
    assert!(!line.contains("  left "), "{line}");
    splice.stop();
}

/// The size of /dev/zero is unknown, unless a part of it is asked for.
#[test]
fn an_endless_device_has_no_share() {
    for (args, share) in [(&[][..], false), (&["--size", "1T"][..], true)] {
        let mut splice = drawing(
            80,
            cordboard()
                .args(["splice", "/dev/zero", "/dev/null", "--rate", "1M"])
                .args(args),
        );
        let line = splice.line_with(&["  elapsed 0:0"]);
        assert_eq!(line.contains(" of 1.0 TiB (0 %)"), share, "{line}");
        assert_eq!(line.contains("  left "), share, "{line}");
        splice.stop();
    }
}

/// A pipe keeps the line that is drawn: `tail -n1` finds the report on a line of its own.
#[test]
fn a_line_that_is_drawn_in_a_pipe_ends_before_results() {
    let args = ["--progress", "always", "--json", "--hash", "crc32"];
    let mut child = piped(cordboard().args(["splice", "-", "/dev/null"]).args(args));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"123456789").unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut seen = String::new();
    while !seen.ends_with("\x1b[K") {
        let mut piece = [0; 256];
        let n = stderr.read(&mut piece).unwrap();
        assert!(n > 0, "{seen}");
        seen += std::str::from_utf8(&piece[..n]).unwrap();
    }
    drop(stdin);
    stderr.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{seen}");
    let lines: Vec<&str> = seen.lines().collect();
    let [.., hash, summary, report] = lines[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(hash, "cbf43926  -");
    assert!(summary.starts_with("moved 9 bytes in "), "{seen:?}");
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["read"], 9);
}
