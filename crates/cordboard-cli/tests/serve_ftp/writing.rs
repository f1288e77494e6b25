//! Users that may write, and users that may not.

use std::io::Read;

use super::common::mounted::Mounted;
use super::common::{bytes, can_mount};
use super::server::{PASSWORD, Server};

#[test]
fn files_are_written_appended_and_continued() {
    let server = Server::start(&[]);
    let mut client = server.ann();
    let data = bytes(2_000_000);
    let reply = client.put("STOR up", &data);
    assert!(reply.text.starts_with("226 2000000 bytes"), "{reply:?}");
    assert!(server.read("up") == data);
    assert_eq!(client.put("STOR up", b"short").code, 226);
    assert_eq!(server.read("up"), b"short", "replaced");
    assert_eq!(client.put("APPE up", b"er").code, 226);
    assert_eq!(server.read("up"), b"shorter");
    client.ask("REST 5", 350);
    assert_eq!(client.put("STOR up", b"EST").code, 226);
    assert_eq!(server.read("up"), b"shortEST");
    assert_eq!(client.put("APPE new", b"1").code, 226);
    assert_eq!(server.read("new"), b"1");
    server.logs(&["ann STOR /up 2000000 bytes", "complete"]);
    server.logs(&["ann APPE /new 1 byte ", "complete"]);
}

/// Whether the file system refuses the offset or the first write depends on its type.
#[test]
fn an_offset_that_is_too_large_leaves_no_file() {
    use std::io::Write as _;
    let server = Server::start(&[]);
    server.write("old", b"old");
    let mut client = server.ann();
    for offset in [u64::MAX, 1 << 63, (1 << 63) - 1] {
        for name in ["new", "old"] {
            client.ask(&format!("REST {offset}"), 350);
            let mut data = client.passive();
            client.send(&format!("STOR {name}"));
            let mut reply = client.reply();
            if reply.code == 150 && offset < 1 << 63 {
                let _ = data.write_all(b"bytes");
                drop(data);
                reply = client.reply();
            }
            assert!(reply.code >= 400, "{offset}: {reply:?}");
        }
        assert!(!server.path("new").exists(), "{offset}");
        assert_eq!(server.read("old"), b"old", "{offset}");
    }
}

#[test]
fn a_unique_name_is_reported() {
    let server = Server::start(&[]);
    server.write("upload.1", b"old");
    let mut client = server.ann();
    let mut data = client.passive();
    let said = client.ask("STOU", 150);
    assert!(said.ends_with("FILE: upload.2"), "{said}");
    std::io::Write::write_all(&mut data, b"new").unwrap();
    drop(data);
    client.expect(226);
    assert_eq!(
        (server.read("upload.1"), server.read("upload.2")),
        (b"old".to_vec(), b"new".to_vec())
    );
}

/// All names that are tried first exist.
#[test]
fn a_unique_name_is_always_found() {
    let server = Server::start(&[]);
    for number in 1..=1000 {
        server.write(&format!("upload.{number}"), b"old");
    }
    let mut client = server.ann();
    for _ in 0..2 {
        assert_eq!(client.put("STOU", b"new").code, 226);
    }
    let files = std::fs::read_dir(server.path("")).unwrap();
    let contents = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    assert_eq!(contents.filter(|bytes| bytes == b"new").count(), 2);
}

/// The kernel returns `ENOTDIR` as well.
#[test]
fn a_path_with_a_slash_at_its_end_is_not_that_of_a_file() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    std::fs::create_dir(server.path("d")).unwrap();
    std::os::unix::fs::symlink("d", server.path("link")).unwrap();
    let mut client = server.ann();
    for path in ["f/", "f/.", "f//"] {
        for verb in ["RETR", "STOR", "APPE", "DELE", "RNFR"] {
            let _data = client.passive();
            let said = client.ask(&format!("{verb} {path}"), 550);
            assert!(said.contains("Not a directory"), "{verb}: {said}");
        }
    }
    client.ask("DELE link/", 550);
    client.ask("STOR new/", 550);
    assert!(!server.path("new").exists() && server.path("link").is_symlink());
    assert_eq!(server.read("f"), b"f");
    client.ask("RNFR d/", 350);
    client.ask("RNTO e", 250);
    client.ask("RMD e/", 250);
}

#[test]
fn a_link_without_a_target_is_renamed_and_deleted() {
    let server = Server::start(&[]);
    for (target, name) in [("none", "lost"), ("../users", "out")] {
        std::os::unix::fs::symlink(target, server.path(name)).unwrap();
        let mut client = server.ann();
        client.ask(&format!("RNFR {name}"), 350);
        client.ask("RNTO moved", 250);
        let link = std::fs::read_link(server.path("moved")).unwrap();
        assert_eq!(link, std::path::Path::new(target));
        client.ask("DELE moved", 250);
    }
    assert!(server.path("../users").exists());
}

/// The byte 0xFF is the escape byte of Telnet. Some clients double it, others do not.
#[test]
fn an_escape_byte_of_telnet_in_a_name_never_selects_another_file() {
    use std::os::unix::ffi::OsStrExt;
    let server = Server::start(&[]);
    let path = |name: &[u8]| {
        server
            .folder
            .path()
            .join("root")
            .join(std::ffi::OsStr::from_bytes(name))
    };
    let mut client = server.ann();
    for (sent, name, other) in [
        (&b"a\xffb"[..], &b"a\xffb"[..], &b"a"[..]),
        (b"a\xff\xffb", b"a\xffb", b"a"),
        (b"c\xff", b"c\xff", b"c"),
        (b"\xff\xf0abc", b"\xff\xf0abc", b"abc"),
        (b"d\xff\xfbef", b"d\xff\xfbef", b"df"),
    ] {
        std::fs::write(path(name), b"").unwrap();
        std::fs::write(path(other), b"").unwrap();
        client.send_bytes(&[b"DELE ", sent, b"\r\n"].concat());
        client.expect(250);
        assert!(path(other).exists() && !path(name).exists());
    }
    client.send_bytes(b"MKD d\xff\xff\r\n");
    client.expect(257);
    client.send_bytes(b"CWD d\xff\r\n");
    client.expect(250);
    client.send("PWD");
    // Each of the two bytes becomes a replacement character.
    assert_eq!(client.expect(257), "257 \"/d\u{fffd}\u{fffd}\"");
}

#[test]
fn the_tree_is_changed() {
    let server = Server::start(&[]);
    let mut client = server.ann();
    let made = client.ask("MKD d", 257);
    assert_eq!(made, "257 \"/d\" created");
    client.ask("MKD d", 550);
    let made = client.ask("MKD d/q\"q", 257);
    assert_eq!(made, "257 \"/d/q\"\"q\" created");
    client.ask("RMD d/q\"q", 250);
    server.write("d/f", b"f");
    client.ask("RNFR d/f", 350);
    client.ask("RNTO g", 250);
    assert_eq!(server.read("g"), b"f");
    client.ask("RNTO h", 503);
    client.ask("RNFR g", 350);
    client.ask("NOOP", 200);
    client.ask("RNTO h", 503);
    // Also an invalid line ends it.
    for (line, code) in [
        ("XYZZY", 500),
        ("RNTO", 501),
        ("TYPE E", 504),
        (&"x".repeat(5000), 500),
    ] {
        client.ask("RNFR g", 350);
        client.ask(line, code);
        client.ask("RNTO h", 503);
    }
    client.ask("RNFR none", 550);
    client.ask("RNFR d", 350);
    let said = client.ask("RNTO d/e", 550);
    assert!(said.contains("cannot be moved into itself"), "{said}");
    client.ask("RNFR d", 350);
    client.ask("RNTO a\0b", 501);
    client.ask("MLST a\0b", 501);
    let said = client.ask("MFMT 20010909014640 g", 213);
    assert_eq!(said, "213 Modify=20010909014640; g");
    assert!(client.ask("MDTM g", 213).ends_with(" 20010909014640"));
    client.ask("DELE d", 550);
    client.ask("DELE g", 250);
    client.ask("DELE g", 550);
    client.ask("RMD d", 250);
    client.ask("RMD /", 550);
    assert_eq!(std::fs::read_dir(server.path("")).unwrap().count(), 0);
    server.logs(&["ann DELE /g", "done"]);
    server.logs(&["ann RNFR /d/f RNTO /g: done"]);
}

/// Some file systems store no time after 2446. The kernel would store the nearest one.
#[test]
fn a_time_that_cannot_be_stored_is_refused() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let mut client = server.ann();
    client.ask("MFMT 20010909014640 f", 213);
    let mut stored = "20010909014640";
    for time in ["99991231235959", "00000101000000"] {
        client.send(&format!("MFMT {time} f"));
        let reply = client.reply();
        match reply.code {
            213 => stored = time,
            504 => assert!(reply.text.contains("cannot store this time"), "{reply:?}"),
            _ => panic!("{reply:?}"),
        }
        let said = client.ask("MDTM f", 213);
        assert!(said.ends_with(stored), "{time}: {reply:?}, {said}");
    }
}

/// Neither an anonymous client nor a user with :ro changes anything.
#[test]
fn users_without_the_right_to_write_change_nothing() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    for (name, password) in [("anonymous", "x"), ("bob", PASSWORD)] {
        let mut client = server.connect();
        client.login(name, password);
        for line in [
            "STOR f",
            "STOR new",
            "APPE f",
            "STOU",
            "DELE f",
            "RNFR f",
            "MKD d",
            "RMD d",
            "MFMT 20010909014640 f",
        ] {
            let _data = client.passive();
            client.ask(line, 550);
        }
        assert_eq!(client.fetch("RETR f"), b"f");
    }
    assert_eq!(server.read("f"), b"f");
    assert_eq!(std::fs::read_dir(server.path("")).unwrap().count(), 1);
}

/// A file keeps its contents if no data connection is made.
#[test]
fn a_file_is_not_truncated_before_the_data_connection() {
    let server = Server::start(&[]);
    server.write("precious", b"precious");
    let mut client = server.ann();
    client.ask("STOR precious", 425);
    assert_eq!(server.read("precious"), b"precious");
    client.epsv();
    client.send("STOR precious");
    client.ask("ABOR", 425);
    client.expect(226);
    assert_eq!(server.read("precious"), b"precious");
}

/// An upload that ends with a reset is not complete.
#[test]
fn an_upload_that_ends_with_a_reset_is_not_complete() {
    let server = Server::start(&[]);
    let mut client = server.ann();
    let mut data = client.passive();
    client.ask("STOR up", 150);
    std::io::Write::write_all(&mut data, &bytes(100_000)).unwrap();
    rustix::net::sockopt::set_socket_linger(&data, Some(std::time::Duration::ZERO)).unwrap();
    drop(data);
    client.expect(426);
    server.logs(&["STOR /up", "ECONNRESET"]);
    client.ask("NOOP", 200);
}

#[test]
fn a_full_disk_is_reported() {
    let server = Server::start(&[]);
    let Some(_mounted) = Mounted::tmpfs("size=64k", &server.path("small")) else {
        return;
    };
    let mut client = server.ann();
    let mut data = client.passive();
    client.ask("STOR small/f", 150);
    let written = std::io::Write::write_all(&mut data, &bytes(4_000_000));
    let said = client.expect(452);
    assert!(
        said.contains("ENOSPC") && said.contains("after 65536 bytes"),
        "{said}"
    );
    // The data connection was reset.
    let mut rest = Vec::new();
    assert!(written.is_err() || data.read_to_end(&mut rest).is_err());
}

/// Some file systems report at `close(2)` that the server has no space, and some of them once.
#[test]
fn an_upload_is_complete_once_the_file_is_closed() {
    if !can_mount() {
        return;
    }
    let full = testkit::fuse::Served::full();
    for ascii in [false, true] {
        let mounted = testkit::fuse::with_file(full, |at| {
            let server = Server::start(&[]);
            server.write("up", b"");
            rustix::mount::mount_bind(at, server.path("up")).unwrap();
            let mut client = server.ann();
            if ascii {
                client.ask("TYPE A", 200);
            }
            let reply = client.put("STOR up", b"a line\r\n");
            let flags = rustix::mount::UnmountFlags::DETACH;
            rustix::mount::unmount(server.path("up"), flags).unwrap();
            assert_eq!(reply.code, 452, "{reply:?}");
            server.logs(&["STOR /up", "(ENOSPC)"]);
        });
        if !mounted {
            return testkit::skip::here("no FUSE here");
        }
    }
}
