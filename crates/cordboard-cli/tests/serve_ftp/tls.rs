//! AUTH TLS, encrypted data connections, and clients that end them badly.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::refuse::refuse;

use super::aborts::is_reset;
use super::bounds::{free_descriptors, limit_descriptors};
use super::client::Client;
use super::common::{TempDir, apart, bytes, call, dir};
use super::server::{PASSWORD, Server};

/// A certificate for this machine, signed by itself.
pub struct Certificate {
    _folder: TempDir,
    pub cert: PathBuf,
    key: PathBuf,
}

impl Certificate {
    pub fn new() -> Certificate {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let folder = dir();
        let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Certificate {
            _folder: folder,
            cert,
            key,
        }
    }

    pub fn server(&self, flags: &[&str]) -> Server {
        self.server_in(dir().path(), flags)
    }

    /// A server with this runtime directory.
    pub fn server_in(&self, home: &Path, flags: &[&str]) -> Server {
        let (cert, key) = (self.cert.to_str().unwrap(), self.key.to_str().unwrap());
        let flags = [&["--tls-cert", cert, "--tls-key", key], flags].concat();
        Server::with("127.0.0.1:0", &flags, home)
    }

    fn connection(&self) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&self.cert).unwrap())
            .unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }

    pub fn data(&self, client: &mut Client) -> StreamOwned<ClientConnection, TcpStream> {
        StreamOwned::new(self.connection(), client.passive())
    }

    /// A client whose connections are all encrypted.
    pub fn ann(&self, server: &Server) -> Client {
        let mut client = server.connect();
        client.encrypt(self.connection());
        client.ask("PBSZ 0", 200);
        client.ask("PROT P", 200);
        client.login("ann", PASSWORD);
        client
    }
}

#[test]
fn files_are_read_and_written_encrypted() {
    let certificate = Certificate::new();
    let server = certificate.server(&["--require-tls"]);
    read_and_write(&certificate, &server);
}

/// A filter may know only the calls for messages.
#[test]
fn encryption_needs_neither_recvfrom_nor_sendto() {
    let certificate = Certificate::new();
    let server = apart(|| {
        refuse(&[libc::SYS_recvfrom, libc::SYS_sendto], libc::EPERM);
        certificate.server(&["--require-tls"])
    });
    read_and_write(&certificate, &server);
}

fn read_and_write(certificate: &Certificate, server: &Server) {
    let mut client = certificate.ann(server);
    for data in [bytes(1_000_000), Vec::new()] {
        server.write("data", &data);
        let mut stream = certificate.data(&mut client);
        let said = client.ask("RETR data", 150);
        assert!(said.contains("TLS through user space"), "{said}");
        let mut got = Vec::new();
        // Without the end of TLS this is an error.
        stream.read_to_end(&mut got).unwrap();
        assert!(client.expect(226).contains("TLS through user space"));
        assert!(got == data);
        let mut stream = certificate.data(&mut client);
        client.ask("STOR up", 150);
        stream.write_all(&data).unwrap();
        // If there are no data, the handshake begins only here.
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        client.expect(226);
        assert!(server.read("up") == data);
    }
    let mut stream = certificate.data(&mut client);
    client.ask("NLST", 150);
    let mut names = String::new();
    stream.read_to_string(&mut names).unwrap();
    client.expect(226);
    assert_eq!(names, "data\r\nup\r\n");
    server.logs(&[
        "RETR /data 1000000 bytes",
        "TLS through user space",
        "complete",
    ]);
}

/// A client that only writes does not read, not even session tickets. If there were unread
/// bytes, the kernel would reset the connection at its close, and the server would lose bytes.
#[test]
fn a_client_that_only_writes_may_close_at_once() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    let data = bytes(1_500_000);
    let mut client = certificate.ann(&server);
    for _ in 0..10 {
        let mut stream = certificate.data(&mut client);
        client.ask("STOR up", 150);
        stream.write_all(&data).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        drop(stream);
        client.expect(226);
        assert!(server.read("up") == data);
    }
}

#[test]
fn without_encryption_logins_and_data_are_refused_if_it_is_required() {
    let certificate = Certificate::new();
    let server = certificate.server(&["--require-tls"]);
    server.write("f", b"f");
    let mut client = server.connect();
    assert!(client.ask("FEAT", 211).contains("\n AUTH TLS"));
    client.ask("USER ann", 530);
    client.ask("USER anonymous", 530);
    client.ask("PROT P", 503);
    client.encrypt(certificate.connection());
    client.login("ann", PASSWORD);
    client.ask("PROT C", 534);
    let _data = client.passive();
    client.ask("RETR f", 521);
    client.ask("LIST none", 521);
    client.ask("AUTH TLS", 503);
}

/// TLS is offered, not required. AUTH TLS ends an earlier login.
#[test]
fn encryption_may_begin_later() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    server.write("f", b"f");
    let mut client = server.ann();
    assert_eq!(client.fetch("RETR f"), b"f");
    client.ask("AUTH KERBEROS", 504);
    client.encrypt(certificate.connection());
    client.ask("PWD", 530);
    client.login("ann", PASSWORD);
    assert_eq!(client.fetch("RETR f"), b"f", "PROT C");
}

/// Commands that another host has inserted after AUTH TLS are not carried out.
#[test]
fn plaintext_commands_after_auth_tls_are_dropped() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    let mut client = server.connect();
    client.send_bytes(b"AUTH TLS\r\nUSER ann\r\n");
    client.expect(234);
    let socket = client.socket.try_clone().unwrap();
    let mut stream = StreamOwned::new(certificate.connection(), socket);
    stream.write_all(b"PASS x\r\n").unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"503 ", "there is no USER");
}

/// Another host may have caused an end of TCP without the end of TLS.
#[test]
fn an_upload_that_is_cut_is_not_complete() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    let mut client = certificate.ann(&server);
    let mut stream = certificate.data(&mut client);
    client.ask("STOR up", 150);
    stream.write_all(&bytes(50_000)).unwrap();
    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect(426);
    client.ask("NOOP", 200);
    assert!(!server.logs(&["STOR /up"]).ends_with("complete"));
}

/// The connection fails before the end of the handshake: the client does not begin it, or
/// rejects the certificate.
#[test]
fn an_upload_without_a_handshake_keeps_the_file() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let server = certificate.server(&[]);
    server.write("up", b"the file");
    let mut client = certificate.ann(&server);
    let data = client.passive();
    client.ask("STOR up", 150);
    drop(data);
    client.expect(426);
    assert_eq!(server.read("up"), b"the file");
    let mut stream = other.data(&mut client);
    client.ask("STOR up", 150);
    assert!(stream.write_all(b"bytes").is_err());
    drop(stream);
    client.expect(426);
    assert_eq!(server.read("up"), b"the file");
}

/// Whichever descriptor is missing, no thread is left that ends the handshake and truncates the
/// file.
#[test]
fn an_upload_without_descriptors_keeps_the_file() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    server.write("up", b"the file");
    let mut client = certificate.ann(&server);
    let mut codes = Vec::new();
    for left in 0..40 {
        let mut stream = certificate.data(&mut client);
        let limit = free_descriptors(&server, left + 1).pop().unwrap();
        limit_descriptors(&server, limit);
        client.send("STOR up");
        let mut reply = client.reply();
        if reply.code == 150 {
            client.send("ABOR");
            reply = client.reply();
            client.expect(226);
        }
        codes.push(reply.code);
        limit_descriptors(&server, 1000);
        assert!(stream.write_all(b"bytes").is_err(), "{left}: {reply:?}");
        assert_eq!(server.read("up"), b"the file");
        if reply.code == 426 {
            break;
        }
    }
    assert!(codes.contains(&451) && codes.ends_with(&[426]), "{codes:?}");
}

/// A new file is removed if the connection fails before its first byte.
#[test]
fn an_upload_without_a_handshake_leaves_no_file() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    server.write("empty", b"");
    let mut client = certificate.ann(&server);
    for (line, name) in [
        ("STOR new", "new"),
        ("APPE new", "new"),
        ("STOU", "upload.1"),
    ] {
        let data = client.passive();
        client.ask(line, 150);
        assert!(server.path(name).exists());
        drop(data);
        client.expect(426);
        assert!(!server.path(name).exists(), "{line}");
    }
    let data = client.passive();
    client.ask("STOR empty", 150);
    drop(data);
    client.expect(426);
    assert_eq!(server.read("empty"), b"");
    // An upload of no bytes is complete.
    assert_eq!(server.ann().put("STOR plain", b"").code, 226);
    assert_eq!(server.read("plain"), b"");
}

/// A client that does not read the last bytes can still abort. The sizes are chosen so that
/// these bytes are in different buffers.
#[test]
fn a_client_that_does_not_read_can_abort() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    let mut cut = 0;
    for size in [1 << 16, 1 << 20, 3 << 20, 5 << 20, 6 << 20, 64 << 20] {
        std::fs::File::create(server.path("f"))
            .unwrap()
            .set_len(size)
            .unwrap();
        let mut client = certificate.ann(&server);
        let mut stream = certificate.data(&mut client);
        client.ask("RETR f", 150);
        stream.read_exact(&mut [0; 100]).unwrap();
        client.send("STAT\r\nNOOP\r\nABOR");
        let mut codes = [0; 4].map(|_| client.reply().code);
        if codes == [213, 200, 426, 226] {
            cut += 1;
            assert!(is_reset(stream.sock));
        } else {
            // The transfer has ended before one of the commands.
            codes.sort_unstable();
            assert!(matches!(codes, [200, 211 | 213, 226, 226]), "{codes:?}");
        }
        client.ask("NOOP", 200);
    }
    assert!(cut > 0);
}

#[test]
fn each_command_behind_an_abort_is_answered() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    let file = std::fs::File::create(server.path("f")).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut client = certificate.ann(&server);
    for (line, commands, codes) in [
        ("RETR f", "ABOR\r\nABOR", &[426, 226, 226][..]),
        ("STOR up", "ABOR\r\nABOR", &[426, 226, 226]),
        ("RETR f", "ABOR\r\nNOOP\r\nSTAT", &[426, 226, 200, 211]),
    ] {
        let data = client.passive();
        client.ask(line, 150);
        client.send(commands);
        for code in codes {
            client.expect(*code);
        }
        assert!(is_reset(data), "{line}");
        client.ask("NOOP", 200);
    }
}

/// The data connection is also reset during the handshake, and during an upload.
#[test]
fn an_encrypted_transfer_without_bytes_is_reset() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    server.write("f", b"f");
    let mut client = certificate.ann(&server);
    for line in ["RETR f", "STOR up"] {
        let data = client.passive();
        client.ask(line, 150);
        client.ask("ABOR", 426);
        client.expect(226);
        assert!(is_reset(data), "{line}");
    }
}

/// The last bytes are sent within the time of grace, as without TLS.
#[test]
fn an_encrypted_transfer_may_end_after_the_signal() {
    let certificate = Certificate::new();
    let mut server = certificate.server(&["--grace", "1000"]);
    server.write("f", b"all bytes");
    let mut client = certificate.ann(&server);
    let mut stream = certificate.data(&mut client);
    client.ask("RETR f", 150);
    server.signal(rustix::process::Signal::TERM);
    super::common::until("the listener closed", || {
        TcpStream::connect(server.address).is_err().then_some(())
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"all bytes");
    client.expect(226);
    client.expect(421);
    assert_eq!(server.end().code(), 0);
}

/// The client sends a part of a record, or no TLS at all.
#[test]
fn half_a_record_does_not_block_the_server() {
    let certificate = Certificate::new();
    let server = certificate.server(&["--idle", "0.3", "--clients", "1"]);
    for sent in [
        &b"\x16\x03\x01"[..],
        b"\x16\x03\x01\xff\xff",
        b"NOOP\r\nNOOP\r\n",
        b"",
    ] {
        let mut client = super::common::until("a place", || {
            let mut client = Client::new(TcpStream::connect(server.address).unwrap());
            (client.reply().code == 220).then_some(client)
        });
        client.ask("AUTH TLS", 234);
        client.send_bytes(sent);
        let mut rest = Vec::new();
        let _ = client.socket.read_to_end(&mut rest);
    }
}

/// As that of a client that is killed.
#[test]
fn the_log_names_the_user_whose_connection_ends_badly() {
    let certificate = Certificate::new();
    let server = certificate.server(&[]);
    drop(certificate.ann(&server));
    let line = server.logs(&["the connection ended without the end of TLS"]);
    assert!(line.contains(" ann "), "{line}");
}

#[test]
fn an_invalid_certificate_is_reported() {
    let certificate = Certificate::new();
    let (cert, key) = (
        certificate.cert.to_str().unwrap(),
        certificate.key.to_str().unwrap(),
    );
    let with = |cert: &str, key: &str| {
        call([
            "serve",
            "ftp",
            "--root",
            ".",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
        ])
    };
    with("/none", key).fails(2, &["--tls-cert: /none: "]);
    with(cert, "/none").fails(2, &["--tls-key: /none: "]);
    let no_key = format!("--tls-key: {cert}: no private key");
    with(cert, cert).fails(2, &[&no_key]);
    let no_certificate = format!("--tls-cert: {key}: no certificate");
    with(key, key).fails(2, &[&no_certificate]);
    let other = Certificate::new();
    let other = other.key.to_str().unwrap();
    let mismatch = format!("--tls-key: {other}: not the key of the certificate {cert}");
    with(cert, other).fails(2, &[&mismatch]);
    assert_eq!(
        call(["serve", "ftp", "--root", ".", "--tls-cert", cert]).code(),
        2
    );
    assert_eq!(
        call(["serve", "ftp", "--root", ".", "--require-tls"]).code(),
        2
    );
}
