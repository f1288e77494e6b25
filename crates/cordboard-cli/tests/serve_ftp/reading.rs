//! Reading files and directories, without a login of a user.

use std::io::{Read, Write};

use super::common::bytes;
use super::server::Server;

#[test]
fn a_file_is_read_whole_and_by_an_in_kernel_path() {
    let server = Server::start(&[]);
    let data = bytes(3_000_000);
    server.write("data", &data);
    let mut client = server.anonymous();
    assert!(client.fetch("RETR data") == data);
    let line = server.logs(&["anonymous RETR /data 3000000 bytes", "complete"]);
    if testkit::needs::Need::Splice.is_met() {
        assert!(
            line.contains("by splice") || line.contains("by sendfile"),
            "{line}"
        );
    }
    // PASV does the same as EPSV.
    let mut socket = std::net::TcpStream::connect(client.pasv()).unwrap();
    client.ask("RETR data", 150);
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    assert!(client.expect(226).contains("3000000 bytes"));
    assert!(got == data);
    server.write("empty", b"");
    assert_eq!(client.fetch("RETR empty"), b"");
    client.ask("QUIT", 221);
    assert_eq!(client.next(), None);
}

#[test]
fn a_transfer_continues_at_an_offset() {
    let server = Server::start(&[]);
    server.write("digits", b"0123456789");
    let mut client = server.anonymous();
    client.ask("REST 4", 350);
    assert_eq!(client.fetch("RETR digits"), b"456789", "kept by EPSV");
    assert_eq!(
        client.fetch("RETR digits"),
        b"0123456789",
        "for one transfer only"
    );
    client.ask("REST 10", 350);
    assert_eq!(client.fetch("RETR digits"), b"");
    client.ask("REST 11", 350);
    let _data = client.passive();
    client.ask("RETR digits", 550);
    client.ask("REST x", 501);
    client.ask("REST -1", 501);
    client.ask("TYPE A", 200);
    client.ask("REST 4", 504);
}

#[test]
fn lines_are_converted_in_ascii_and_the_replies_say_so() {
    let server = Server::start(&[]);
    server.write("text", b"one\ntwo\r\nthree");
    let mut client = server.ann();
    let said = client.ask("TYPE A", 200);
    assert!(said.contains("user space"), "{said}");
    let mut data = client.passive();
    assert!(client.ask("RETR text", 150).contains("user space"));
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    client.expect(226);
    assert_eq!(got, b"one\r\ntwo\r\nthree");
    assert_eq!(client.put("STOR up", b"a\r\nb\r\n").code, 226);
    assert_eq!(server.read("up"), b"a\nb\n");
    server.logs(&["RETR /text", "by read/write, ASCII", "complete"]);
    client.ask("SIZE text", 550);
}

#[test]
fn directories_are_listed() {
    let server = Server::start(&[]);
    std::fs::create_dir(server.path("sub")).unwrap();
    server.write("sub/b", b"12345");
    server.write("a file", b"x");
    std::os::unix::fs::symlink("a file", server.path("link")).unwrap();
    server.write("two\nlines", b"");
    let mut client = server.anonymous();
    assert_eq!(client.fetch_text("NLST"), "a file\r\nlink\r\nsub\r\n");
    let long = client.fetch_text("LIST -la");
    let sub = long.lines().find(|line| line.ends_with(" sub")).unwrap();
    assert!(sub.starts_with("drwx"), "{sub}");
    let facts = client.fetch_text("MLSD sub");
    assert!(facts.starts_with("type=file;size=5;modify="), "{facts}");
    assert!(
        facts.ends_with("; b\r\n") && facts.contains("perm=r;"),
        "{facts}"
    );
    let fact = client.ask("MLST sub/b", 250);
    assert!(
        fact.contains("\n type=file;size=5;") && fact.contains(" /sub/b"),
        "{fact}"
    );
    assert!(client.ask("STAT sub", 213).contains(" b\n"));
    let _data = client.passive();
    client.ask("LIST none", 550);
    // RFC 3659, 7.2.1.
    for (path, code) in [
        ("sub/b", 501),
        ("sub/b/", 501),
        ("none", 550),
        ("a file/b", 550),
    ] {
        client.ask(&format!("MLSD {path}"), code);
    }
    let mut client = server.anonymous();
    client.ask("LIST", 425);
    // The directory is not read before.
    client.ask("LIST none", 425);
    server.logs(&["LIST /", "complete"]);
}

/// The names of NLST are arguments of other commands (RFC 1123, 4.1.2.7), also of a pattern,
/// which clients send for `mget`.
#[test]
fn names_of_files_are_listed_as_paths_and_by_patterns() {
    let server = Server::start(&[]);
    std::fs::create_dir_all(server.path("sub/deep.c")).unwrap();
    for name in ["a.c", "b.c", ".hidden.c", "c[1].h", "sub/x.c", "sub/y.h"] {
        server.write(name, name.as_bytes());
    }
    let mut client = server.anonymous();
    for (path, names) in [
        ("sub", "sub/deep.c\r\nsub/x.c\r\nsub/y.h\r\n"),
        ("/sub/", "/sub/deep.c\r\n/sub/x.c\r\n/sub/y.h\r\n"),
        ("sub/x.c", "sub/x.c\r\n"),
        ("*.c", "a.c\r\nb.c\r\n"),
        ("sub/?.[ch]", "sub/x.c\r\nsub/y.h\r\n"),
        (".*.c", ".hidden.c\r\n"),
        ("c[1].h", "c[1].h\r\n"),
        ("-a .", ".hidden.c\r\na.c\r\nb.c\r\nc[1].h\r\nsub\r\n"),
    ] {
        assert_eq!(client.fetch_text(&format!("NLST {path}")), names, "{path}");
    }
    let long = client.fetch_text("LIST sub/*.c");
    let names: Vec<&str> = long
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(names, ["deep.c", "x.c"]);
    let _data = client.passive();
    for refused in [
        "NLST *.none",
        "NLST [",
        "NLST */x.c",
        "MLSD *.c",
        "NLST sub/x.c/",
        "LIST sub/x.c/.",
        "RETR *.c",
    ] {
        client.ask(refused, 550);
    }
}

/// A client that mirrors a tree would leave out a file that is listed as a special one. It would
/// follow a link to a directory, and would copy it without end, or delete its target.
#[test]
fn links_are_listed_as_files_as_links_or_as_special_files() {
    let server = Server::start(&[]);
    std::fs::create_dir(server.path("sub")).unwrap();
    server.write("file", b"12345");
    server.write("../outside", b"1");
    let long = "x".repeat(256);
    for (target, name) in [
        ("../file", "up"),
        ("../sub", "loop"),
        ("../../outside", "out"),
        ("none", "lost"),
        (&long, "long"),
    ] {
        std::os::unix::fs::symlink(target, server.path("sub").join(name)).unwrap();
    }
    let mut client = server.anonymous();
    let facts = client.fetch_text("MLSD sub");
    let of = |name: &str| {
        let end = format!("; {name}");
        let line = facts.lines().find(|line| line.ends_with(&end));
        line.unwrap().to_owned()
    };
    assert!(of("up").starts_with("type=file;size=5;"), "{facts}");
    let link = "type=OS.unix=slink:../sub;modify=";
    assert!(of("loop").starts_with(link), "{facts}");
    assert!(of("loop").contains(";perm=;"), "{facts}");
    for special in ["out", "lost", "long"] {
        assert!(of(special).starts_with("type=OS.unix=special;"), "{facts}");
        assert!(of(special).contains(";perm=;"), "{facts}");
    }
    assert_eq!(client.fetch("RETR sub/up"), b"12345");
    assert!(
        client
            .ask("MLST sub/up", 250)
            .contains(" type=file;size=5;")
    );
    client.ask("MLST sub/lost", 550);
    let text = client.fetch_text("LIST sub");
    let line = text.lines().find(|line| line.ends_with(" loop -> ../sub"));
    assert!(line.unwrap().starts_with("lrwx"), "{text}");
    assert!(client.ask("MLST sub/loop", 250).contains(link));
    // It is entered.
    client.ask("CWD sub/loop/loop", 250);
    assert!(client.ask("MLST", 250).contains(" type=dir;"));
    assert!(client.ask("MLST ../loop/", 250).contains(" type=dir;"));
    assert!(client.fetch_text("NLST").contains("loop\r\n"));
    assert_eq!(client.fetch_text("NLST loop/up*"), "loop/up\r\n");
}

/// One link must not hide the other entries.
#[test]
fn a_link_with_a_name_that_is_too_long_is_listed() {
    let server = Server::start(&[]);
    server.write("f", b"");
    std::os::unix::fs::symlink("x".repeat(256), server.path("link")).unwrap();
    let mut client = server.ann();
    for line in ["LIST", "MLSD", "NLST"] {
        let text = client.fetch_text(line);
        assert!(
            text.contains("f\r\n") && text.contains("link\r\n"),
            "{text}"
        );
    }
    client.ask("STAT .", 213);
    client.ask("DELE link", 250);
}

#[test]
fn the_directory_is_changed_within_the_root() {
    let server = Server::start(&[]);
    std::fs::create_dir_all(server.path("a/b\"c")).unwrap();
    let mut client = server.anonymous();
    assert!(client.ask("PWD", 257).starts_with("257 \"/\""));
    client.ask("CWD a", 250);
    client.ask("CWD b\"c", 250);
    assert!(client.ask("PWD", 257).starts_with("257 \"/a/b\"\"c\""));
    client.ask("CDUP", 250);
    client.ask("CWD ../../..", 250);
    assert!(client.ask("PWD", 257).starts_with("257 \"/\""));
    client.ask("CWD none", 550);
    assert!(client.ask("PWD", 257).starts_with("257 \"/\""));
}

#[test]
fn facts_and_settings_are_reported() {
    let server = Server::start(&[]);
    server.write("a", b"123");
    let file = std::fs::File::options()
        .write(true)
        .open(server.path("a"))
        .unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(time).unwrap();
    let mut client = server.connect();
    let features = client.ask("FEAT", 211);
    for feature in [
        "EPRT",
        "EPSV",
        "MDTM",
        "MLST type*",
        "REST STREAM",
        "SIZE",
        "UTF8",
    ] {
        assert!(features.contains(&format!("\n {feature}")), "{features}");
    }
    assert!(!features.contains("AUTH"), "{features}");
    client.ask("AUTH TLS", 502);
    client.ask("OPTS UTF8 ON", 200);
    client.ask("SYST", 215);
    client.ask("NOOP", 200);
    client.ask("HELP", 214);
    client.login("anonymous", "x");
    assert!(client.ask("SIZE a", 213).ends_with(" 3"));
    assert!(client.ask("MDTM a", 213).ends_with(" 20010909014640"));
    client.ask("SIZE none", 550);
    client.ask("MODE S", 200);
    client.ask("MODE B", 504);
    client.ask("STRU F", 200);
    client.ask("STRU R", 504);
    client.ask("ALLO 100", 202);
    client.ask("TYPE E", 504);
    client.ask("STAT", 211);
    client.ask("ACCT x", 202);
    for line in ["SITE EXEC ls", "REIN", "SMNT /"] {
        client.ask(line, 502);
    }
    client.ask("XYZZY", 500);
    client.ask("RETR", 501);
}

/// Commands that arrive together, in pieces, and without CR are carried out in order.
#[test]
fn commands_arrive_in_any_pieces() {
    let server = Server::start(&[]);
    let mut client = server.anonymous();
    client.send_bytes(b"NOOP\nPWD\r\nSY");
    client.expect(200);
    client.expect(257);
    client.send_bytes(b"ST\r");
    client.socket.flush().unwrap();
    client.send_bytes(b"\n");
    client.expect(215);
}
