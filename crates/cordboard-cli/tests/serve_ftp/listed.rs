//! `cordboard top` shows the transfers, and paces them.

use std::io::{Read, Write};
use std::path::Path;

use super::common::{cordboard, dir, run, until};
use super::server::Server;
use super::tls::Certificate;
use super::tty::Tty;

/// The control sockets in this runtime directory, by label.
fn entries(home: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(home.join("cordboard"))
        .into_iter()
        .flatten();
    let entry = |file: std::io::Result<std::fs::DirEntry>| {
        let path = file.unwrap().path();
        let text = std::fs::read(&path).ok()?;
        let entry: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let label = entry["label"].as_str()?.to_owned();
        // {"Unix":[bytes]}
        let bytes = entry["socket"]["Unix"].as_array()?.iter();
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().unwrap() as u8).collect();
        Some((label, String::from_utf8(bytes).unwrap()))
    };
    files.filter_map(entry).collect()
}

fn cue(socket: &str, args: &[&str]) -> serde_json::Value {
    let run = run(cordboard().arg("cue").arg(socket).args(args).arg("--json"));
    assert_eq!(run.code(), 0, "{}", run.stderr());
    serde_json::from_slice(run.stdout()).unwrap()
}

#[test]
fn a_person_paces_and_cancels_a_download() {
    let home = dir();
    let server = Server::with("127.0.0.1:0", &["--rate", "1M"], home.path());
    let (mut client, mut data) = server.in_a_download();
    let mut tty = Tty::start(
        cordboard()
            .env("CORDBOARD_RUNTIME_DIR", home.path())
            .arg("top"),
        12,
        80,
    );
    tty.shows(&["> ftp /large -> 127.0.0.1", "running", "0 %"]);
    tty.shows(&["max 1.0 MiB/s"]);
    tty.press("p");
    tty.shows(&["/large", "paused"]);
    tty.press("r-");
    tty.shows(&["/large", "running"]);
    tty.shows(&["max 500 KiB/s"]);
    tty.press("cy");
    tty.shows(&["/large", "cancelled"]);
    let text = client.reply();
    assert_eq!(text.code, 426, "{text:?}");
    assert!(data.read_to_end(&mut Vec::new()).is_err(), "a reset");
    until("no entry", || entries(home.path()).is_empty().then_some(()));
    assert_eq!(
        std::fs::read_dir(home.path().join("cordboard"))
            .unwrap()
            .count(),
        0
    );
    tty.press("q");
    assert_eq!(tty.ends().code(), Some(0));
    // The session goes on.
    client.ask("NOOP", 200);
}

/// Each kind of transfer is steered: by a cue, and with a stage.
#[test]
fn each_kind_of_transfer_is_steered() {
    let home = dir();
    let server = Server::with("127.0.0.1:0", &["--rate", "1"], home.path());
    server.write("file", &b"line\n".repeat(100_000));
    for (kind, total) in [("TYPE I", Some(500_000)), ("TYPE A", None)] {
        let mut client = server.anonymous();
        client.ask(kind, 200);
        let mut data = client.passive();
        client.ask("RETR file", 150);
        let (label, socket) = until("an entry", || entries(home.path()).pop());
        assert_eq!(label, "/file -> 127.0.0.1");
        let status = until("a status", || {
            let status = cue(&socket, &["status"]);
            (status["state"] == "running").then_some(status)
        });
        assert_eq!(status["total"].as_u64(), total, "{kind}");
        assert_eq!(status["schedule"]["rate"], 1);
        assert_eq!(cue(&socket, &["pause"])["state"], "paused");
        // No schedule is faster from now on: the transfer does not end.
        let limited = cue(&socket, &["limit", "rate", "2"]);
        assert_eq!(
            limited["limits"],
            serde_json::json!([{"rate": 2}]),
            "{kind}"
        );
        // A limit is not loosened.
        let limited = cue(&socket, &["limit", "rate", "3"]);
        assert_eq!(limited["limits"][0]["rate"], 2, "{kind}");
        assert_eq!(cue(&socket, &["resume"])["state"], "running");
        assert_eq!(
            cue(&socket, &["auto", "background"])["schedule"]["auto"],
            "background"
        );
        cue(&socket, &["rate", "1G"]);
        cue(&socket, &["cancel"]);
        assert_eq!(client.reply().code, 426, "{kind}");
        let _ = data.read_to_end(&mut Vec::new());
        until("no entry", || entries(home.path()).is_empty().then_some(()));
    }
}

/// The server itself ends the connection, and not the client.
#[test]
fn a_cancelled_encrypted_transfer_has_no_error() {
    let certificate = Certificate::new();
    let home = dir();
    let server = certificate.server_in(home.path(), &[]);
    let large = std::fs::File::create(server.path("large")).unwrap();
    large.set_len(1 << 30).unwrap();
    let mut client = certificate.ann(&server);
    for line in ["STOR up", "RETR large"] {
        for kind in ["TYPE I", "TYPE A"] {
            client.ask(kind, 200);
            let mut data = certificate.data(&mut client);
            client.ask(line, 150);
            match line {
                "STOR up" => data.write_all(b"a part\n").unwrap(),
                _ => data.read_exact(&mut [0; 100]).unwrap(),
            }
            let (_, socket) = until("an entry", || entries(home.path()).pop());
            cue(&socket, &["cancel"]);
            let text = client.expect(426);
            assert!(text.contains("The transfer ended after"), "{line}: {text}");
            until("no entry", || entries(home.path()).is_empty().then_some(()));
        }
    }
}

/// The first status is not that of the last report, which is from before the transfer began.
#[test]
fn a_status_is_current() {
    let home = dir();
    let server = Server::with("127.0.0.1:0", &[], home.path());
    let (_client, _data) = server.in_a_download();
    let (_, socket) = until("an entry", || entries(home.path()).pop());
    let status = cue(&socket, &["status"]);
    assert_eq!(status["state"], "running");
    assert!(status["written"].as_u64() > Some(0), "{status}");
}

/// The confined server writes no other entries, and runs without a directory.
#[test]
fn without_a_directory_nothing_is_listed() {
    use std::os::unix::fs::PermissionsExt;
    let home = dir();
    let list = home.path().join("cordboard");
    std::fs::create_dir(&list).unwrap();
    std::fs::set_permissions(&list, PermissionsExt::from_mode(0o777)).unwrap();
    let server = Server::with("127.0.0.1:0", &["--rate", "1M"], home.path());
    let (mut client, _data) = server.in_a_download();
    // The first report of progress comes later than an entry would.
    until("progress", || {
        (!client.ask("STAT", 213).contains(" 0 bytes")).then_some(())
    });
    assert_eq!(std::fs::read_dir(&list).unwrap().count(), 0);
}

/// It may be full, or a cleaner of `/tmp` may have removed it.
#[test]
fn a_transfer_that_cannot_be_listed_is_logged() {
    let home = dir();
    let server = Server::with("127.0.0.1:0", &[], home.path());
    std::fs::remove_dir(home.path().join("cordboard")).unwrap();
    let (_client, _data) = server.in_a_download();
    server.logs(&["`cordboard top` does not show a transfer: ", "ENOENT"]);
}
