//! Help, man pages and completions, which are generated from the same flags.
#![allow(missing_docs)]

mod common;

use common::*;

fn text(run: &Run) -> String {
    String::from_utf8(run.ok().stdout().to_vec()).unwrap()
}

#[test]
fn help_man_pages_and_completions() {
    let help = text(&call(["--help"]));
    for words in [
        "splice",
        "copy",
        "cat",
        "explain",
        "unix-seqpacket:PATH",
        "Examples:",
    ] {
        assert!(help.contains(words), "{words}");
    }
    assert!(!help.contains("completions"));
    assert!(text(&call(["copy", "--help"])).contains("<SRC>... <DST>"));
    assert!(text(&call(["--version"])).starts_with("cordboard 0."));
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&call(["completions", shell]));
        assert!(script.contains("sparse") && script.contains("cordboard"));
    }
    assert!(text(&call(["man"])).contains(".TH cordboard 1"));
    assert!(text(&call(["man", "splice"])).contains("unix\\-listen"));
    // What the first signal does not end is explained with the signals.
    for page in [
        &["man"][..],
        &["man", "splice"],
        &["man", "copy"],
        &["man", "cat"],
        &["man", "play"],
    ] {
        let page = text(&call(page)).replace('\n', " ");
        assert!(
            page.contains("does not respond (NFS, FUSE); the second does"),
            "{page}"
        );
    }
    // The description of the keys, in either.
    for page in [
        text(&call(["man", "play"])),
        text(&call(["play", "--help"])),
    ] {
        assert!(page.contains("Space pauses the video"), "{page}");
    }
    for page in [
        &["man", "serve-ftp"][..],
        &["serve", "ftp", "--help"],
        &["serve", "ftp", "-h"],
    ] {
        let page = text(&call(page));
        assert!(
            page.contains("after the first SIGTERM, SIGINT, SIGHUP or SIGALRM"),
            "{page}"
        );
    }
    assert!(text(&call(["top", "--help"])).contains("CORDBOARD_RUNTIME_DIR"));
    // It handles no signals, and moves no bytes.
    for page in [&["man", "cue"][..], &["cue", "--help"], &["cue", "-h"]] {
        let page = text(&call(page));
        assert!(page.contains("success, also if the answer"), "{page}");
        for words in ["SIGUSR1", "second signal", "CORDBOARD_"] {
            assert!(!page.contains(words), "{words}: {page}");
        }
    }
    let dir = dir();
    call(["man".as_ref(), dir.path().as_os_str()]).ok();
    // The same pages, printed or written, and no others.
    let names = [
        "",
        "splice",
        "copy",
        "cat",
        "play",
        "cue",
        "cue-status",
        "cue-pause",
        "cue-resume",
        "cue-rate",
        "cue-schedule",
        "cue-auto",
        "cue-cancel",
        "cue-limit",
        "cue-limit-rate",
        "cue-limit-schedule",
        "top",
        "serve",
        "serve-ftp",
        "explain",
    ];
    for name in names {
        let words = ["man", name].into_iter().filter(|word| !word.is_empty());
        let page = text(&call(words));
        let joined = format!("cordboard-{name}");
        let file = format!("{}.1", joined.trim_end_matches('-'));
        assert_eq!(read(dir.path().join(&file)), page.as_bytes(), "{file}");
        let source = concat!(" \"cordboard ", env!("CARGO_PKG_VERSION"), "\"");
        let title = page.lines().find(|line| line.starts_with(".TH "));
        assert!(title.unwrap().contains(source), "{title:?}");
        assert!(!page.contains("help(1)"), "{file}");
    }
    let written = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(written, names.len());
    for name in ["nonsense", "help", "man"] {
        call(["man", name]).fails(2, &[name, "neither"]);
    }
}

/// Every page that a page names exists, and all are named by the page above.
#[test]
fn every_man_page_that_is_named_exists() {
    let dir = dir();
    call(["man".as_ref(), dir.path().as_os_str()]).ok();
    let mut named = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = String::from_utf8(read(&path)).unwrap().replace("\\-", "-");
        for (end, _) in page.match_indices("(1)") {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let start = page[..end].rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
            let name = &page[start..end];
            if name.starts_with("cordboard") {
                let file = dir.path().join(format!("{name}.1"));
                assert!(file.exists(), "{} names {name}", path.display());
                named += 1;
            }
        }
    }
    assert!(named >= std::fs::read_dir(dir.path()).unwrap().count() - 1);
}

/// A word that is not text names no command, and may name a directory.
#[test]
fn a_name_that_is_no_text_is_that_of_a_directory() {
    use std::os::unix::ffi::OsStrExt;
    let dir = dir();
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"pages\xff"));
    let words = ["man".as_ref(), path.as_os_str()];
    call(words).fails(2, &["neither a command nor a directory"]);
    call(["man", "\x1b[2J"]).fails(2, &["\\u{1b}[2J: is neither"]);
    std::fs::create_dir(&path).unwrap();
    assert_eq!(text(&call(words)), "");
    assert_eq!(
        read(path.join("cordboard.1")),
        text(&call(["man"])).as_bytes()
    );
}

/// A directory to which the pages cannot be written is reported by name.
#[test]
fn man_pages_that_cannot_be_written_are_told_of() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("cordboard-cat.1")).unwrap();
    let run = call(["man".as_ref(), dir.path().as_os_str()]);
    run.fails(1, &["cordboard-cat.1", "(EISDIR)"]);
}

/// Returns a page as man(1) shows it on a terminal of 80 columns. `None`: the test is skipped.
fn shown(page: &std::path::Path) -> Option<String> {
    let mut groff = std::process::Command::new("groff");
    groff.args(["-man", "-Tascii", "-P-cbou", "-rLL=78n"]);
    let Ok(out) = groff.arg(page).output() else {
        testkit::skip::here("no groff here");
        return None;
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.is_empty(), "{page:?}: {said}");
    Some(String::from_utf8(out.stdout).unwrap())
}

/// Filled text may break lines, spread words and hyphenate them.
#[test]
fn lists_commands_and_names_are_whole_in_man_pages() {
    let dir = dir();
    call(["man".as_ref(), dir.path().as_os_str()]).ok();
    let page = |name: &str| shown(&dir.path().join(format!("cordboard{name}.1")));
    let Some(main) = page("") else {
        return;
    };
    let help = text(&call(["--help"]));
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let (examples, _) = examples.split_once("\n\n").unwrap();
    let mut shown = main.lines().map(str::trim);
    for line in examples.lines() {
        assert!(shown.any(|shown| shown == line.trim()), "{line}: {main}");
    }
    for (name, usage) in [
        ("-copy", "cordboard copy [OPTIONS] <SRC>... <DST>"),
        ("-splice", "cordboard splice [OPTIONS] <SRC> <DST> [DST]..."),
        ("-cat", "cordboard cat [OPTIONS] [FILE]..."),
        ("-cue", "cordboard cue [OPTIONS] <CONTROL> <COMMAND>"),
    ] {
        let page = page(name).unwrap();
        assert!(page.lines().any(|line| line.trim() == usage), "{page}");
    }
    let splice = page("-splice").unwrap();
    let titles = splice
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    let titles: Vec<&str> = titles.collect();
    for title in [
        "ENDPOINTS",
        "EXIT STATUS",
        "SIGNALS",
        "UNITS",
        "ENVIRONMENT",
    ] {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
    for term in [
        "PATH, file:PATH",
        "tcp-listen:HOST:PORT",
        "udp-listen:HOST:PORT",
        "unix-seqpacket:PATH",
        "unix-seqpacket-listen:PATH",
        "CORDBOARD_ROUTE, CORDBOARD_WITHOUT",
        "CORDBOARD_TUNE=processor",
        "CORDBOARD_ENGINE=io_uring",
        "0      success",
        "2      wrong usage",
    ] {
        let is_item = |line: &str| line.trim() == term;
        assert!(splice.lines().any(is_item), "{term}: {splice}");
    }
    for page in std::fs::read_dir(dir.path()).unwrap() {
        let page = self::shown(&page.unwrap().path()).unwrap();
        for line in page.lines() {
            assert!(line.len() <= 80, "{line}");
            assert!(!line.ends_with('-'), "a word is divided: {line}");
        }
    }
}

#[test]
fn completions_offer_the_paths() {
    let names: Vec<&str> = (cordboard::DataPath::ALL.iter())
        .map(|path| path.name())
        .collect();
    let script = text(&call(["completions", "bash"]));
    let mut lines = script.lines();
    let mut offered = 0;
    while lines.any(|line| {
        [" --route)", " --without)"]
            .iter()
            .any(|option| line.ends_with(option))
    }) {
        let offer = format!("compgen -W \"{}\"", names.join(" "));
        let line = lines.next().unwrap();
        assert!(line.contains(&offer), "{line}");
        offered += 1;
    }
    // Of splice, copy, cat, play and explain.
    assert_eq!(offered, 10);
    // Of splice, copy, cat and play; of splice, copy and explain.
    for (option, words, number) in [
        (" --progress)", "auto always lines never", 4),
        (" --sparse)", "auto always never", 3),
    ] {
        let offers = format!("compgen -W \"{words}\"");
        let lines = script.lines().zip(script.lines().skip(1));
        let of = lines.filter(|(line, _)| line.ends_with(option));
        let offers = of.filter(|(_, offer)| offer.contains(&offers)).count();
        assert_eq!(offers, number, "{option}");
    }
    // All paths are listed with --route, once.
    let help = text(&call(["splice", "--help"]));
    let listed = format!("possible values: {}", names.join(", "));
    assert_eq!(help.matches(&listed).count(), 1, "{help}");
}
