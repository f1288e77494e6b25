//! ABOR, STAT and the rate, while bytes move.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use super::client::Client;
use super::common::{bytes, until};
use super::connection::{CLOSE_WAIT, received, state};
use super::server::Server;

/// A client with a transfer that cannot complete: the client does not read, and the data
/// exceed all buffers.
fn stuck(server: &Server) -> (Client, TcpStream) {
    stuck_with(server, "TYPE I")
}

fn stuck_with(server: &Server, kind: &str) -> (Client, TcpStream) {
    let file = std::fs::File::create(server.path("large")).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut client = server.anonymous();
    client.ask(kind, 200);
    let mut data = client.passive();
    client.ask("RETR large", 150);
    data.read_exact(&mut [0; 1000]).unwrap();
    (client, data)
}

/// Reads to the end. Returns whether the connection was reset.
pub fn is_reset(mut data: TcpStream) -> bool {
    let mut block = vec![0; 1 << 16];
    loop {
        match data.read(&mut block) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn an_abort_ends_the_transfer_and_resets_its_connection() {
    let server = Server::start(&[]);
    // Without and with the interrupt and the mark of Telnet, which here is not urgent data.
    for bytes in [&b"ABOR\r\n"[..], b"\xff\xf4\xff\xf2ABOR\r\n", b"abor\r\n"] {
        let (mut client, data) = stuck(&server);
        client.send_bytes(bytes);
        assert!(client.expect(426).contains("Aborted after"));
        client.expect(226);
        assert!(is_reset(data));
        client.ask("NOOP", 200);
        server.logs(&["RETR /large", "Aborted after"]);
    }
    let mut client = server.anonymous();
    client.ask("ABOR", 226);
    // Clients send NOOP to keep the connection alive.
    for (commands, codes) in [
        ("STAT\r\nABOR", &[213, 426, 226][..]),
        ("NOOP\r\nABOR", &[200, 426, 226]),
        (
            "NOOP\r\nSTAT\r\nNOOP\r\nSTAT\r\nABOR",
            &[200, 213, 200, 213, 426, 226],
        ),
    ] {
        let (mut client, _data) = stuck(&server);
        client.send(commands);
        for code in codes {
            client.expect(*code);
        }
    }
}

/// The commands behind an ABOR are carried out after the transfer.
#[test]
fn each_command_behind_an_abort_is_answered() {
    let server = Server::start(&[]);
    for kind in ["TYPE I", "TYPE A"] {
        for (commands, codes) in [
            ("ABOR\r\nABOR\r\n", &[426, 226, 226][..]),
            ("ABOR\r\nNOOP\r\nSTAT\r\n", &[426, 226, 200, 211]),
            (
                "NOOP\r\nABOR\r\nNOOP\r\nABOR\r\n",
                &[200, 426, 226, 200, 226],
            ),
        ] {
            let (mut client, data) = stuck_with(&server, kind);
            client.send_bytes(commands.as_bytes());
            for code in codes {
                client.expect(*code);
            }
            assert!(is_reset(data));
            client.ask("NOOP", 200);
        }
    }
    let mut client = server.ann();
    client.epsv();
    client.send("RETR large\r\nABOR\r\nABOR\r\nNOOP");
    for code in [425, 226, 226, 200] {
        client.expect(code);
    }
}

/// The client does not make the data connection.
#[test]
fn the_wait_for_a_data_connection_is_aborted() {
    let server = Server::start(&[]);
    server.write("f", b"f");
    let mut client = server.ann();
    for verb in ["RETR", "STOR"] {
        client.epsv();
        client.send(&format!("{verb} f"));
        let said = client.ask("STAT", 213);
        assert!(said.contains("Waiting for the data connection"), "{said}");
        client.ask("NOOP", 200);
        client.send("STAT\r\nNOOP\r\nABOR");
        for code in [213, 200, 425, 226] {
            client.expect(code);
        }
    }
    assert_eq!(server.read("f"), b"f");
}

/// The mark is sent as urgent data.
#[test]
fn an_abort_arrives_with_urgent_data() {
    let server = Server::start(&[]);
    let (mut client, data) = stuck(&server);
    client.send_bytes(b"\xff\xf4");
    let sent = rustix::net::send(&client.socket, b"\xff\xf2", rustix::net::SendFlags::OOB);
    assert_eq!(sent, Ok(2));
    client.send("ABOR");
    client.expect(426);
    client.expect(226);
    assert!(is_reset(data));
}

#[test]
fn the_state_of_a_transfer_is_reported_and_other_commands_wait() {
    let server = Server::start(&[]);
    let (mut client, data) = stuck(&server);
    let so_far = |said: String| -> u64 {
        let number = said.strip_suffix(" bytes so far").unwrap();
        number.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // The replies do not wait for the next report of the progress. The engine may count
    // bytes after the client has received them.
    let mut counts = (0..200).map(|_| so_far(client.ask("STAT", 213)));
    assert!(counts.any(|count| count >= 1000));
    // Each one is answered, before the reply to the transfer.
    client.send_bytes("STAT\r\nNOOP\r\n".repeat(250).as_bytes());
    for _ in 0..250 {
        client.expect(213);
        client.expect(200);
    }
    // ABOR after this command also waits.
    client.send("PWD\r\nABOR");
    drop(data);
    client.expect(426);
    client.expect(257);
    client.expect(226);
}

/// Begins an upload, which has stored ten bytes.
fn upload(server: &Server, client: &mut Client) -> TcpStream {
    let mut data = client.passive();
    client.ask("STOR up", 150);
    data.write_all(b"some bytes").unwrap();
    super::common::until("the bytes", || {
        (server.read("up").len() == 10).then_some(())
    });
    data
}

#[test]
fn an_upload_is_aborted() {
    let server = Server::start(&[]);
    let mut client = server.ann();
    let data = upload(&server, &mut client);
    client.ask("ABOR", 426);
    client.expect(226);
    assert!(is_reset(data));
    assert_eq!(server.read("up"), b"some bytes");
}

/// The client has closed the control connection, although a command waits in it.
#[test]
fn a_transfer_is_cancelled_when_the_control_connection_is_closed() {
    let server = Server::start(&[]);
    for commands in ["", "NOOP\r\n", "PWD\r\n"] {
        let mut client = server.ann();
        let data = upload(&server, &mut client);
        client.send_bytes(commands.as_bytes());
        drop(client);
        assert!(is_reset(data), "{commands:?}");
        std::fs::remove_file(server.path("up")).unwrap();
    }
    assert!(!server.log().contains("complete"), "{}", server.log());
}

/// The data connection of a client that is killed, or that aborts, ends as after a whole file. The
/// server finds both ends at the same time.
#[test]
fn an_upload_that_its_client_gives_up_is_not_complete() {
    let server = Server::start(&[]);
    for kind in ["TYPE I", "TYPE A"].repeat(10) {
        for aborts in [false, true] {
            let mut client = server.ann();
            client.ask(kind, 200);
            let mut data = client.passive();
            client.ask("STOR up", 150);
            let of_server = |socket: &TcpStream| {
                let ports = [socket.peer_addr(), socket.local_addr()];
                ports.map(|address| address.unwrap().port())
            };
            let (control, moving) = (of_server(&client.socket), of_server(&data));
            let mut client = Some(client);
            server.while_stopped(|| {
                data.write_all(b"some bytes").unwrap();
                data.shutdown(Shutdown::Write).unwrap();
                match aborts {
                    true => client.as_mut().unwrap().send("ABOR"),
                    false => drop(client.take()),
                }
                until("the end of the data", || {
                    (state(moving)? == CLOSE_WAIT).then_some(())
                });
                until("the command, or the end", || {
                    (state(control)? == CLOSE_WAIT || received(control)? > 0).then_some(())
                });
            });
            if let Some(mut client) = client {
                client.expect(426);
                client.expect(226);
            }
            assert!(is_reset(data), "{kind}, {aborts}");
        }
    }
    assert!(!server.log().contains("complete"), "{}", server.log());
}

/// With a rate of one byte a second, a file of 4,000 bytes does not arrive at once; the
/// abort still takes effect.
#[test]
fn a_rate_paces_each_transfer() {
    let server = Server::start(&["--rate", "1"]);
    server.write("f", &bytes(4000));
    for verb in ["TYPE I", "TYPE A"] {
        let mut client = server.anonymous();
        client.ask(verb, 200);
        let mut data = client.passive();
        client.ask("RETR f", 150);
        data.read_exact(&mut [0]).unwrap();
        client.ask("ABOR", 426);
        client.expect(226);
        let mut rest = Vec::new();
        let _ = data.read_to_end(&mut rest);
        assert!(rest.len() < 3000, "{}", rest.len());
    }
}

/// A listing is also a transfer.
#[test]
fn a_listing_is_aborted() {
    let server = Server::start(&["--rate", "10"]);
    for name in 0..50 {
        server.write(&format!("a file with a long name {name}"), b"");
    }
    let mut client = server.anonymous();
    let data = client.passive();
    client.ask("LIST", 150);
    client.ask("ABOR", 426);
    client.expect(226);
    assert!(is_reset(data));
}

/// The transfer of a file that is truncated while it is read fails.
#[test]
fn a_truncated_file_is_not_sent_as_whole() {
    let server = Server::start(&[]);
    let (mut client, data) = stuck(&server);
    let file = std::fs::File::options()
        .write(true)
        .open(server.path("large"));
    file.unwrap().set_len(1000).unwrap();
    let reset = is_reset(data);
    let said = client.expect(451);
    assert!(said.contains("ENODATA") && reset, "{said}");
}

/// A download that continues at the end of the file would be complete without a byte.
#[test]
fn a_file_that_is_truncated_before_its_offset_is_not_complete() {
    let server = Server::start(&[]);
    let mut client = server.anonymous();
    for (offset, left, code) in [(8, 5, 451), (8, 8, 226), (0, 0, 226)] {
        server.write("f", b"ten bytes.");
        let address = client.epsv();
        client.ask(&format!("REST {offset}"), 350);
        client.send("RETR f");
        // The file is open.
        client.ask("STAT", 213);
        let file = std::fs::File::options().write(true).open(server.path("f"));
        file.unwrap().set_len(left).unwrap();
        let data = TcpStream::connect(address).unwrap();
        client.expect(150);
        assert_eq!(is_reset(data), code == 451, "{offset}");
        client.expect(code);
    }
}
