//! A client that sends exact bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::{ClientConnection, StreamOwned};

use super::common::deadline;

/// A reply: its code and all its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    pub text: String,
}

pub struct Client {
    pub socket: TcpStream,
    tls: Option<StreamOwned<ClientConnection, TcpStream>>,
    got: Vec<u8>,
}

/// Connects from this address of the machine.
pub fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from, 0)).unwrap();
    connect(&socket, &to).unwrap();
    with_timeout(TcpStream::from(socket))
}

fn with_timeout(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(deadline())).unwrap();
    socket.set_write_timeout(Some(deadline())).unwrap();
    socket
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::greeted(TcpStream::connect(address).unwrap())
    }

    pub fn greeted(socket: TcpStream) -> Client {
        let mut client = Client::new(socket);
        assert_eq!(client.reply().code, 220);
        client
    }

    pub fn new(socket: TcpStream) -> Client {
        Client {
            socket: with_timeout(socket),
            tls: None,
            got: Vec::new(),
        }
    }

    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n").as_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            Some(tls) => tls.write_all(bytes).unwrap(),
            None => self.socket.write_all(bytes).unwrap(),
        }
    }

    /// Sends AUTH TLS, and encrypts the connection.
    pub fn encrypt(&mut self, connection: ClientConnection) {
        self.ask("AUTH TLS", 234);
        let socket = self.socket.try_clone().unwrap();
        self.tls = Some(StreamOwned::new(connection, socket));
    }

    /// The next line. `None`: the server has closed the connection.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.got.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.got.drain(..=end).collect();
                assert!(line.ends_with(b"\r\n"), "{line:?}");
                return Some(String::from_utf8_lossy(&line[..end - 1]).into_owned());
            }
            let mut bytes = [0; 4096];
            let done = match &mut self.tls {
                Some(tls) => tls.read(&mut bytes),
                None => self.socket.read(&mut bytes),
            };
            match done {
                Ok(0) => return None,
                Ok(n) => self.got.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error} instead of a reply"),
            }
        }
    }

    /// The next reply; `None` at the end of the connection.
    pub fn next(&mut self) -> Option<Reply> {
        let first = self.line()?;
        let code: u16 = first[..3].parse().unwrap_or_else(|_| panic!("{first}"));
        let mut text = first.clone();
        if first.as_bytes()[3] == b'-' {
            loop {
                let line = self.line().expect("the last line of the reply");
                text = text + "\n" + &line;
                if line.starts_with(&format!("{code} ")) {
                    break;
                }
            }
        }
        Some(Reply { code, text })
    }

    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.next().expect("a reply")
    }

    /// Checks the code of the next reply, and returns its text.
    #[track_caller]
    pub fn expect(&mut self, code: u16) -> String {
        let reply = self.reply();
        assert_eq!(reply.code, code, "{}", reply.text);
        reply.text
    }

    /// Sends a command, and checks the code of its reply.
    #[track_caller]
    pub fn ask(&mut self, line: &str, code: u16) -> String {
        self.send(line);
        let reply = self.reply();
        assert_eq!(reply.code, code, "{line}: {}", reply.text);
        reply.text
    }

    #[track_caller]
    pub fn login(&mut self, name: &str, password: &str) {
        self.ask(&format!("USER {name}"), 331);
        self.ask(&format!("PASS {password}"), 230);
        self.ask("TYPE I", 200);
    }

    /// The address of a passive data connection.
    #[track_caller]
    pub fn pasv(&mut self) -> SocketAddr {
        let text = self.ask("PASV", 227);
        let inside = text.split(['(', ')']).nth(1).unwrap();
        let parts: Vec<u8> = inside
            .split(',')
            .map(|part| part.parse().unwrap())
            .collect();
        let address = IpAddr::from([parts[0], parts[1], parts[2], parts[3]]);
        SocketAddr::new(address, u16::from_be_bytes([parts[4], parts[5]]))
    }

    #[track_caller]
    pub fn epsv(&mut self) -> SocketAddr {
        let text = self.ask("EPSV", 229);
        // With the interface of a link-local address.
        let mut address = self.socket.peer_addr().unwrap();
        address.set_port(text.rsplit('|').nth(1).unwrap().parse().unwrap());
        address
    }

    /// Opens a passive data connection.
    #[track_caller]
    pub fn passive(&mut self) -> TcpStream {
        let address = self.epsv();
        with_timeout(TcpStream::connect(address).unwrap())
    }

    /// Opens a passive data connection with a small receive buffer.
    #[track_caller]
    pub fn narrow(&mut self) -> TcpStream {
        let address = self.epsv();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        connect(&socket, &address).unwrap();
        with_timeout(TcpStream::from(socket))
    }

    /// Listens for an active data connection. Also returns the command for it.
    pub fn active(&self) -> (TcpListener, String) {
        let listener = TcpListener::bind((self.socket.local_addr().unwrap().ip(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let [high, low] = address.port().to_be_bytes();
        let ip = address.ip().to_string().replace('.', ",");
        (listener, format!("PORT {ip},{high},{low}"))
    }

    /// Sends a command that reads, and returns what arrives up to the end of the data.
    #[track_caller]
    pub fn fetch(&mut self, line: &str) -> Vec<u8> {
        let mut data = self.passive();
        self.ask(line, 150);
        let mut bytes = Vec::new();
        data.read_to_end(&mut bytes).unwrap();
        self.expect(226);
        bytes
    }

    #[track_caller]
    pub fn fetch_text(&mut self, line: &str) -> String {
        String::from_utf8(self.fetch(line)).unwrap()
    }

    /// Sends a command that writes, and the bytes. Returns the last reply.
    #[track_caller]
    pub fn put(&mut self, line: &str, bytes: &[u8]) -> Reply {
        let mut data = self.passive();
        self.ask(line, 150);
        data.write_all(bytes).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        self.reply()
    }
}
