//! Misleading names: files that are named like other endpoints, and names that
//! refer to another file by the time the command would remove it.
#![allow(missing_docs)]

mod common;

use std::os::unix::net::UnixListener;
use std::process::Stdio;

use common::*;
use rustix::process::Signal;

#[test]
fn an_interrupted_splice_removes_its_own_file_and_no_other() {
    let dir = dir();
    fifo(&dir.path().join("silent"));
    let sink = dir.path().join("sink");
    for replaced in [false, true] {
        let child = cordboard()
            .arg("splice")
            .args([&dir.path().join("silent"), &sink])
            .stderr(Stdio::piped())
            .start();
        // Held open, so that there is no end.
        let silent = dir.path().join("silent");
        let _writer = std::fs::File::options().write(true).open(silent).unwrap();
        until("the sink", || sink.exists().then_some(()));
        if replaced {
            let theirs = file(&dir, "theirs", b"precious");
            std::fs::rename(theirs, &sink).unwrap();
        }
        signal(child.id(), Signal::INT);
        assert_eq!(end(child).code(), 130);
        assert_eq!(sink.exists(), replaced);
    }
    assert_eq!(read(&sink), b"precious");
    // Nothing that it has received remains.
    let names = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(names.count(), 2);
}

/// Not merely bound: by then the command has registered its file.
fn listens(path: &std::path::Path) -> bool {
    // __SO_ACCEPTCON of include/linux/net.h.
    const ACCEPTS: &str = "00010000";
    let name = path.to_str().unwrap();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(3) == Some(&ACCEPTS) && fields.last() == Some(&name)
    })
}

#[test]
fn a_socket_of_another_process_is_not_removed() {
    let dir = dir();
    let path = dir.path().join("s");
    let mut name = std::ffi::OsString::from("unix-listen:");
    name.push(&path);
    let child = cordboard()
        .arg("splice")
        .arg(&name)
        .arg("/dev/null")
        .stderr(Stdio::piped())
        .start();
    until("the socket", || listens(&path).then_some(()));
    std::fs::remove_file(&path).unwrap();
    let _theirs = UnixListener::bind(&path).unwrap();
    signal(child.id(), Signal::TERM);
    assert_eq!(end(child).code(), 143);
    assert!(path.exists());
}

/// A list of all files of a directory opens no port, and reads no other file.
#[test]
fn a_file_that_is_called_like_another_endpoint_is_that_file() {
    let names = [
        "tcp-listen:127.0.0.1:0",
        "tcp:localhost:1",
        "unix-listen:s",
        "fd:0",
        "file:other",
    ];
    let dir = dir();
    file(&dir, "other", b"of another name");
    for name in names {
        file(&dir, name, name.as_bytes());
    }
    let at = || {
        let mut command = cordboard();
        command.current_dir(dir.path());
        command
    };
    let all = run(at().arg("cat").args(names));
    assert_eq!(all.ok().stdout(), names.concat().as_bytes());
    std::fs::create_dir(dir.path().join("into")).unwrap();
    run(at().arg("copy").args(names).arg("into")).ok();
    for name in names {
        assert_eq!(read(dir.path().join("into").join(name)), name.as_bytes());
        // As the source, and as the sink.
        let one = run(at().args(["splice", name, "-"]));
        assert_eq!(one.ok().stdout(), name.as_bytes());
        run(at().args(["splice", "other", name])).ok();
        assert_eq!(read(dir.path().join(name)), b"of another name");
        let told = run(at().args(["explain", "--json", name, "/dev/null"]));
        assert!(told.ok().stdout().starts_with(b"{"), "{}", told.stderr());
    }
    // A dangling symlink is a name too, and not a port.
    std::os::unix::fs::symlink("nothing", dir.path().join("udp-listen:127.0.0.1:0")).unwrap();
    let run_ = run(at().args(["splice", "udp-listen:127.0.0.1:0", "-"]));
    run_.fails(
        1,
        &["udp-listen:127.0.0.1:0: No such file or directory (ENOENT)"],
    );
}

#[test]
fn cat_takes_no_other_endpoint() {
    let dir = dir();
    let other = file(&dir, "other", b"contents");
    for name in ["tcp-listen:127.0.0.1:0", "fd:0", "udp:localhost:1"] {
        let run = run(cordboard()
            .current_dir(dir.path())
            .args(["cat", name, "other"]));
        run.fails(
            1,
            &[name, "(ENOENT)", "cat takes only files and -", "splice"],
        );
        assert_eq!(run.stdout(), b"contents");
    }
    let named = format!("file:{}", other.display());
    assert_eq!(call(["cat", &named]).ok().stdout(), b"contents");
    let socket = dir.path().join("s");
    let _listener = UnixListener::bind(&socket).unwrap();
    let run = call(["cat".as_ref(), socket.as_os_str()]);
    run.fails(1, &["(ENXIO)", "cordboard splice unix:/"]);
}

/// `/dev/stdout` and similar: the placeholder of a closed descriptor cannot be
/// read or written.
#[test]
fn names_of_standard_descriptors_that_were_closed() {
    let dir = dir();
    let [s, film, kept] = ["s", "film", "kept"].map(|name| file(&dir, name, b"precious"));
    std::os::unix::fs::symlink("/proc/self/fd/0", dir.path().join("in")).unwrap();
    std::os::unix::fs::symlink("/dev/stdout", dir.path().join("out")).unwrap();
    let names = |number: u8, standard: &'static str, link: &'static str| {
        [
            "/dev/fd",
            "/proc/self/fd",
            "/proc/thread-self/fd",
            "/proc/$$/fd",
        ]
        .map(|at| format!("{at}/{number}"))
        .into_iter()
        .chain([standard.to_owned(), link.to_owned()])
    };
    let refused = |words: String, closing: &str, name: &str, side: &str| {
        let script = format!(r#"exec "$0" {words} {closing}"#);
        let run = run(std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_cordboard")])
            .current_dir(dir.path())
            .stdin(Stdio::null()));
        if closing.contains("2>&-") {
            assert_eq!(run.code(), 1, "{script}");
        } else {
            let says = format!("Bad file descriptor (EBADF) opening the {side}; it is a standard");
            // The shell has put its own number into the name.
            let name = name.split("$$").last().unwrap();
            run.fails(1, &[name, &says]);
        }
        assert!(run.stdout().is_empty(), "{script}");
        for kept in [&s, &film, &kept] {
            assert_eq!(read(kept), b"precious", "{script}");
        }
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            5,
            "{script}"
        );
    };
    for closing in ["<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"] {
        for name in names(0, "/dev/stdin", "in") {
            for words in [
                "splice @ kept",
                "copy @ kept",
                "copy @ new",
                "cat @",
                "explain @ new",
            ] {
                if closing.contains('>') && !words.contains("copy") && !words.contains("splice") {
                    continue;
                }
                refused(words.replace('@', &name), closing, &name, "source");
            }
        }
    }
    for closing in [">&-", ">&- <&-", ">&- 2>&-", ">&- <&- 2>&-"] {
        for name in names(1, "/dev/stdout", "out") {
            for words in [
                "splice s @",
                "splice --append s @",
                "copy s @",
                "copy -r s @",
                "copy --append s @",
                "play s film --frame 1 --fps 100 --video-to kept --audio-to @",
                "play s film --frame 1 --fps 100 --audio-to kept --video-to @",
            ] {
                refused(words.replace('@', &name), closing, &name, "sink");
            }
        }
    }
    for name in names(2, "/dev/stderr", "/dev/stderr") {
        refused(format!("splice s {name}"), "2>&-", &name, "sink");
    }
    // Other files that the names lead to are unchanged.
    let script = r#"exec "$0" splice /dev/stdin /dev/stdout <s 2>&-"#;
    let run = run(std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_cordboard")])
        .current_dir(dir.path()));
    assert_eq!(run.ok().stdout(), b"precious");
}
