//! Logins with correct and wrong passwords.

use std::process::Stdio;

use super::client::{Client, connect_from};
use super::common::{Start, call, cordboard, end, feed};
use super::server::{PASSWORD, Server};

#[test]
fn nothing_is_revealed_before_the_login() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let mut client = server.connect();
    for line in [
        "PWD",
        "CWD /",
        "LIST",
        "NLST",
        "MLSD",
        "MLST f",
        "RETR f",
        "STOR f",
        "SIZE f",
        "MDTM f",
        "PASV",
        "EPSV",
        "PORT 127,0,0,1,9,9",
        "STAT",
        "STAT f",
        "DELE f",
        "RNFR f",
        "REST 1",
    ] {
        client.ask(line, 530);
    }
    client.ask("PASS x", 503);
}

#[test]
fn a_wrong_password_is_refused_and_the_third_disconnects() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for code in [530, 530, 421] {
        client.ask("USER ann", 331);
        client.ask("PASS wrong", code);
    }
    assert_eq!(client.next(), None);
    server.logs(&["ann LOGIN", "wrong password"]);
    assert!(!server.log().contains("PASS"));
    // The user is that of the last login only.
    let mut client = server.ann();
    client.ask("USER bob", 331);
    client.ask("PWD", 530);
    client.ask("PASS wrong", 530);
    client.ask("MKD d", 530);
    client.login("ann", PASSWORD);
    client.ask("MKD d", 257);
}

/// The clients connect again for each password.
#[test]
fn an_address_with_too_many_wrong_passwords_is_refused() {
    let server = Server::start(&[]);
    let from = || {
        let socket = connect_from("127.0.0.2".parse().unwrap(), server.address);
        Client::greeted(socket)
    };
    let (mut wrong, mut refused) = (0, 0);
    // On a slow machine, the verification may not come in time, and does not count.
    while refused == 0 {
        let mut clients: Vec<_> = (0..13).map(|_| from()).collect();
        for client in &mut clients {
            client.send("USER ann\r\nPASS wrong");
        }
        for client in &mut clients {
            client.expect(331);
            let reply = client.reply();
            wrong += usize::from(reply.code == 530);
            refused += usize::from(reply.text.contains("from this address"));
        }
        assert!(wrong <= 10, "{wrong}");
    }
    assert_eq!(wrong, 10);
    let mut client = from();
    client.ask("USER ann", 331);
    let said = client.ask(&format!("PASS {PASSWORD}"), 421);
    assert!(said.contains("from this address"), "{said}");
    assert_eq!(client.next(), None);
    server.logs(&["127.0.0.2 ann LOGIN: not verified"]);
    // Anonymous clients have no password, and other addresses their own count.
    from().login("anonymous", "x");
    server.ann();
}

/// An unknown name is also requested to send a password, and gets the same replies.
#[test]
fn an_unknown_name_gets_the_replies_of_a_wrong_password() {
    let server = Server::start(&["--no-anonymous"]);
    let mut answers = Vec::new();
    for name in ["ann", "eve", "anonymous"] {
        let mut client = server.connect();
        let asked = client.ask(&format!("USER {name}"), 331);
        answers.push((asked, client.ask("PASS wrong", 530)));
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
}

/// Each verification needs 19 MiB, and each session has a thread. The memory does not grow
/// with the number of sessions, whether their passwords are correct or not.
#[test]
fn all_verifications_use_the_same_memory() {
    let server = Server::start(&[]);
    let _first = server.ann();
    let before = server.most_memory();
    let _others: Vec<_> = (0..12).map(|_| server.ann()).collect();
    let mut wrong: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for client in &mut wrong {
        client.send("USER eve\r\nPASS wrong");
    }
    let mut verified = 0;
    for client in &mut wrong {
        client.expect(331);
        let reply = client.reply();
        // On a slow machine, the wait for the memory reaches its limit.
        assert!(matches!(reply.code, 530 | 421), "{reply:?}");
        verified += usize::from(reply.code == 530);
    }
    assert!(verified > 4, "{verified}");
    let grown = server.most_memory() - before;
    assert!(grown < 4 * (19 << 10), "{grown} KiB");
}

#[test]
fn hash_password_prints_the_line_of_a_user() {
    let run = |name: &str, password: &str| {
        let mut child = cordboard()
            .args(["serve", "ftp", "--hash-password", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .start();
        feed(&mut child, password.as_bytes());
        end(child)
    };
    let (first, second) = (run("ann", "secret\n"), run("ann", "secret"));
    let line = String::from_utf8(first.ok().stdout().to_vec()).unwrap();
    assert!(
        line.starts_with("ann:$argon2id$") && line.ends_with('\n'),
        "{line}"
    );
    assert!(!line.contains("secret"));
    assert_ne!(first.stdout(), second.stdout(), "salted");
    for empty in ["", "\n", "\r\n"] {
        run("ann", empty).fails(2, &["ann", "the password is empty"]);
    }
    // A client cannot send it.
    for lines in ["one\ntwo", "one\n\n", "\nsecret\n"] {
        run("ann", lines).fails(2, &["ann", "contains a line feed"]);
    }
    // The command does not read standard input here.
    call(["serve", "ftp", "--hash-password", "a:b"]).fails(2, &["a:b"]);
    // The server would refuse the file of users.
    for name in ["ftp", "Anonymous"] {
        call(["serve", "ftp", "--hash-password", name]).fails(2, &[name, "anonymous clients"]);
    }
    // A file of another system.
    let line = run("ann", &format!("{PASSWORD}\r\n"));
    let server = Server::with_users(line.ok().stdout());
    server.ann();
}
