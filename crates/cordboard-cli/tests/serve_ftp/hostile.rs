//! Clients that are killed, that send garbage, and that close half of a connection.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::common::{bytes, until};
use super::server::Server;

/// Random lines, and random bytes. The server answers each line, or ends the session,
/// and serves the next client.
#[test]
fn garbage_harms_nothing() {
    // The wait for a data connection that is never made ends soon.
    let server = Server::start(&["--idle", "0.5"]);
    server.write("f", b"f");
    testkit::rounds::run("", 1, |random| {
        for number in 0..15 {
            sends_lines(&server, random, number);
        }
    });
    let mut client = server.connect();
    let noise = bytes(300_000);
    let _ = client.socket.write_all(&noise);
    let _ = client.socket.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    let _ = client.socket.read_to_end(&mut rest);
    server.write("f", b"f");
    assert_eq!(server.anonymous().fetch("RETR f"), b"f");
}

/// Sends random lines by a client of this number.
fn sends_lines(server: &Server, random: &mut fastrand::Rng, number: u32) {
    // Without QUIT, after which the server would not read.
    const VERBS: [&str; 23] = [
        "USER", "CWD", "LIST", "RETR", "STOR", "REST", "PORT", "EPRT", "EPSV", "PASV", "TYPE",
        "MLSD", "MFMT", "RNFR", "RNTO", "ABOR", "STAT", "OPTS", "SIZE", "AUTH", "PROT", "NLST",
        "STOU",
    ];
    let mut client = server.ann();
    for _ in 0..20 {
        let mut line = Vec::new();
        if random.bool() {
            line.extend_from_slice(VERBS[random.usize(..VERBS.len())].as_bytes());
            line.push(b' ');
        }
        let length = random.usize(..40);
        line.extend((0..length).map(|_| random.u8(..)));
        line.retain(|byte| !matches!(byte, b'\n' | 0xff));
        line.extend_from_slice(b"\r\n");
        client.send_bytes(&line);
    }
    // The number of replies is not checked here.
    client.send("QUIT");
    let mut last = 0;
    while let Some(reply) = client.next() {
        last = reply.code;
    }
    assert!(matches!(last, 221 | 421), "client {number}: {last}");
}

/// Clients that are killed, in each state, leave no descriptors in the server.
#[test]
fn killed_clients_leave_nothing() {
    let server = Server::start(&[]);
    std::fs::File::create(server.path("large"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    assert_eq!(server.anonymous().fetch("NLST"), b"large\r\n");
    let before = server.descriptors();
    let reset = |socket: &std::net::TcpStream| {
        rustix::net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO)).unwrap();
    };
    for round in 0..12 {
        let mut client = server.anonymous();
        let mut data = client.passive();
        if round % 2 == 0 {
            reset(&client.socket);
            reset(&data);
        }
        match round % 4 {
            0 | 1 => {
                client.ask("RETR large", 150);
                data.read_exact(&mut [0; 100]).unwrap();
            }
            2 => client.send("LIST"),
            _ => {}
        }
        // The data connection stays open: the end of the control connection is sufficient.
        drop(client);
        if round % 3 == 0 {
            let mut block = vec![0; 1 << 16];
            while matches!(data.read(&mut block), Ok(1..)) {}
        }
    }
    until("the descriptors closed", || {
        (server.descriptors() <= before + 8).then_some(())
    });
}

/// If a client shuts down writing after its commands, they are still carried out.
#[test]
fn a_half_closed_client_gets_its_replies() {
    let server = Server::start(&[]);
    let mut client = server.anonymous();
    client.send_bytes(b"NOOP\r\nPWD\r\n");
    client.socket.shutdown(Shutdown::Write).unwrap();
    client.expect(200);
    client.expect(257);
    assert_eq!(client.next(), None);
    // During a transfer, the shutdown counts as the end of the client.
    let (mut client, data) = server.in_a_download();
    client.socket.shutdown(Shutdown::Write).unwrap();
    client.expect(426);
    assert!(super::aborts::is_reset(data));
}

/// The names of files reach the log and the replies as one line.
#[test]
fn names_do_not_forge_lines() {
    let server = Server::start(&[]);
    let mut client = server.ann();
    let said = client.ask("DELE a\rb\x1b[31m", 550);
    assert!(!said.contains('\r'), "{said:?}");
    let line = server.logs(&["ann DELE"]);
    assert!(!line.contains('\x1b') && !line.contains('\r'), "{line:?}");
    client.ask("USER x\x1b]0;title\x07", 331);
    client.ask("PASS x", 530);
    assert!(!server.log().contains('\x1b'));
    // A name is one field of its line.
    client.ask("USER ann RETR /f 9 bytes", 331);
    client.ask("PASS x", 530);
    let line = server.logs(&["wrong password", "RETR"]);
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(
        words[2..4],
        ["ann\\x20RETR\\x20/f\\x209\\x20bytes", "LOGIN:"],
        "{line}"
    );
}
