//! A small FTP server: it sends the files of its working directory. The ways differ
//! only in what the paper replaced, the loop that reads and writes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cordboard::cue::{Command, Record};
use cordboard::{Aim, Cue, Ended};

use crate::harness::network::without_pacing;

/// The buffer of the loop.
const BLOCK: usize = 128 << 10;

/// More descriptors than 64 clients use.
const DESCRIPTORS: i32 = 1023;

/// How a file is sent.
#[derive(Debug, Clone, Copy)]
enum Way {
    UserDriven,
    /// By a control descriptor, after this command if there is one. The connection is
    /// non-blocking: the transfer may then use calls that cannot be interrupted while
    /// they wait, such as `splice(2)`.
    Cue(Option<Command>),
    /// The same without a command, for a connection that blocks.
    Blocking,
}

impl Way {
    /// `read-write`, `cue`, `cue-auto`, `cue-blocking`, or `cue K MS`.
    fn parse(words: &[String]) -> Result<Way> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words[..] {
            ["read-write"] => Way::UserDriven,
            ["cue"] => Way::Cue(None),
            ["cue-blocking"] => Way::Blocking,
            ["cue-auto"] => Way::Cue(Some(Command::Auto(Aim::Throughput))),
            ["cue", count, rest] => Way::Cue(Some(Command::Schedule {
                count: count.parse()?,
                rest: rest.parse()?,
            })),
            _ => bail!("unknown way to send a file: {words:?}"),
        })
    }

    fn send(self, file: &File, mut client: &TcpStream) -> Result<()> {
        let schedule = match self {
            Way::UserDriven => {
                let mut block = vec![0; BLOCK];
                loop {
                    match rustix::io::read(file, &mut block)? {
                        0 => return Ok(()),
                        n => client.write_all(&block[..n])?,
                    }
                }
            }
            Way::Blocking => None,
            Way::Cue(schedule) => {
                client.set_nonblocking(true)?;
                schedule
            }
        };
        let mut cue = Cue::new(file, client)?;
        if let Some(command) = schedule {
            cue.send(command)?;
        }
        cue.send(Command::WriteToEnd)?;
        loop {
            match cue.receive()?.context("the control descriptor has ended")? {
                Record::Done(done) => {
                    let ended = done.ended;
                    ensure!(matches!(ended, Ended::Eof), "{ended:?}: {:?}", done.errno);
                    return Ok(());
                }
                Record::Refused { errno, .. } => bail!("a command was refused: {errno:?}"),
                _ => {}
            }
        }
    }
}

/// Serves clients at this port, each by a thread, until the process is killed.
pub fn run(port: u16, way: &[String]) -> Result<()> {
    let way = Way::parse(way)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // The table of descriptors grows while it has one user: later, all threads would wait for a
    // grace period of RCU (expand_fdtable, fs/file.c).
    drop(rustix::io::fcntl_dupfd_cloexec(&listener, DESCRIPTORS)?);
    loop {
        let (control, _) = listener.accept()?;
        std::thread::Builder::new().spawn(move || {
            // A client that leaves without a word is no fault of the server.
            let _ = serve(&control, way);
        })?;
    }
}

fn serve(control: &TcpStream, way: Way) -> Result<()> {
    let mut out = control;
    out.write_all(b"220 ready\r\n")?;
    let mut passive = None;
    for line in BufReader::new(control).lines() {
        let line = line?;
        let (verb, operand) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb {
            "USER" => "331 any password".to_owned(),
            "PASS" => "230 logged in".to_owned(),
            "TYPE" => "200 binary".to_owned(),
            "PASV" => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                without_pacing(&listener)?;
                let [high, low] = listener.local_addr()?.port().to_be_bytes();
                passive = Some(listener);
                format!("227 here (127,0,0,1,{high},{low})")
            }
            "RETR" => {
                out.write_all(b"150 sending\r\n")?;
                let listener: TcpListener = passive.take().context("no PASV before")?;
                match retrieve(operand, &listener, way) {
                    Ok(()) => "226 sent".to_owned(),
                    Err(error) => format!("426 {error:#}"),
                }
            }
            "QUIT" => {
                out.write_all(b"221 bye\r\n")?;
                return Ok(());
            }
            _ => "502 not known".to_owned(),
        };
        out.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

fn retrieve(name: &str, listener: &TcpListener, way: Way) -> Result<()> {
    ensure!(!name.contains('/'), "no directories");
    let (client, _) = listener.accept()?;
    let file = File::open(name).map_err(|error| anyhow!("{name}: {error}"))?;
    way.send(&file, &client)?;
    Ok(client.shutdown(Shutdown::Both)?)
}
