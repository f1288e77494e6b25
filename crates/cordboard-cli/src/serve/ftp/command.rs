//! Parses the commands of a client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A command. Its arguments are bytes, because file names may contain any bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    User(Vec<u8>),
    Pass(Vec<u8>),
    Auth(Vec<u8>),
    Pbsz,
    Prot(u8),
    Quit,
    Noop,
    Syst,
    Feat,
    Help,
    Stat(Vec<u8>),
    Opts(Vec<u8>),
    Type {
        ascii: bool,
    },
    Structure(u8),
    Mode(u8),
    Allo,
    Account,
    /// A command of RFC 959 that this server does not have.
    Unimplemented,
    Pwd,
    Cwd(Vec<u8>),
    Cdup,
    Pasv,
    Epsv(Epsv),
    Port(SocketAddr),
    /// EPRT.
    ExtendedPort(SocketAddr),
    Rest(u64),
    Abort,
    List(Vec<u8>),
    Names(Vec<u8>),
    MachineList(Vec<u8>),
    MachineFact(Vec<u8>),
    Size(Vec<u8>),
    ModifiedAt(Vec<u8>),
    SetModified {
        seconds: i64,
        path: Vec<u8>,
    },
    Retrieve(Vec<u8>),
    Store(Vec<u8>),
    StoreUnique,
    Append(Vec<u8>),
    RenameFrom(Vec<u8>),
    RenameTo(Vec<u8>),
    Delete(Vec<u8>),
    MakeDirectory(Vec<u8>),
    RemoveDirectory(Vec<u8>),
}

/// The argument of EPSV (RFC 2428).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epsv {
    /// Any protocol.
    Any,
    /// 1: IPv4, 2: IPv6.
    Protocol(u32),
    /// PASV, PORT and EPRT are refused from now on.
    All,
}

/// Why a line is not a valid command, with the code of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// 500: unknown.
    Unknown,
    /// 501: the argument is invalid.
    Argument,
    /// 504: the argument is not supported.
    Unsupported,
    /// 522: the network protocol is not supported (RFC 2428).
    Protocol,
}

/// Parses a line without its end.
pub fn parse(line: &[u8]) -> Result<Command, Bad> {
    let end = line.iter().position(|byte| *byte == b' ');
    let (verb, argument) = match end {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[][..]),
    };
    let verb = verb.to_ascii_uppercase();
    // No file name contains a zero byte.
    if argument.contains(&0) && verb != b"PASS" {
        return Err(Bad::Argument);
    }
    let path = || match argument {
        [] => Err(Bad::Argument),
        bytes => Ok(bytes.to_vec()),
    };
    let text = argument.to_vec();
    Ok(match &verb[..] {
        b"USER" => Command::User(path()?),
        b"PASS" => Command::Pass(text),
        b"AUTH" => Command::Auth(text.to_ascii_uppercase()),
        b"PBSZ" => Command::Pbsz,
        b"PROT" => Command::Prot(one_letter(argument)?),
        b"QUIT" => Command::Quit,
        b"NOOP" => Command::Noop,
        b"SYST" => Command::Syst,
        b"FEAT" => Command::Feat,
        b"HELP" => Command::Help,
        b"STAT" => Command::Stat(text),
        b"OPTS" => Command::Opts(text.to_ascii_uppercase()),
        b"TYPE" => representation(argument)?,
        b"STRU" => Command::Structure(one_letter(argument)?),
        b"MODE" => Command::Mode(one_letter(argument)?),
        b"ALLO" => Command::Allo,
        b"ACCT" => Command::Account,
        b"REIN" | b"SMNT" | b"SITE" => Command::Unimplemented,
        b"PWD" | b"XPWD" => Command::Pwd,
        b"CWD" | b"XCWD" => Command::Cwd(path()?),
        b"CDUP" | b"XCUP" => Command::Cdup,
        b"PASV" => Command::Pasv,
        b"EPSV" => Command::Epsv(epsv(argument)?),
        b"PORT" => Command::Port(port(argument).ok_or(Bad::Argument)?),
        b"EPRT" => Command::ExtendedPort(eprt(argument)?),
        b"REST" => Command::Rest(number(argument).ok_or(Bad::Argument)?),
        b"ABOR" => Command::Abort,
        b"LIST" => Command::List(text),
        b"NLST" => Command::Names(text),
        b"MLSD" => Command::MachineList(text),
        b"MLST" => Command::MachineFact(text),
        b"SIZE" => Command::Size(path()?),
        b"MDTM" => Command::ModifiedAt(path()?),
        b"MFMT" => set_modified(argument)?,
        b"RETR" => Command::Retrieve(path()?),
        b"STOR" => Command::Store(path()?),
        b"STOU" => Command::StoreUnique,
        b"APPE" => Command::Append(path()?),
        b"RNFR" => Command::RenameFrom(path()?),
        b"RNTO" => Command::RenameTo(path()?),
        b"DELE" => Command::Delete(path()?),
        b"MKD" | b"XMKD" => Command::MakeDirectory(path()?),
        b"RMD" | b"XRMD" => Command::RemoveDirectory(path()?),
        _ => return Err(Bad::Unknown),
    })
}

fn one_letter(argument: &[u8]) -> Result<u8, Bad> {
    match argument {
        [letter] => Ok(letter.to_ascii_uppercase()),
        _ => Err(Bad::Argument),
    }
}

/// `A`, `A N`, `I`, `L 8`.
fn representation(argument: &[u8]) -> Result<Command, Bad> {
    match &argument.to_ascii_uppercase()[..] {
        b"A" | b"A N" => Ok(Command::Type { ascii: true }),
        b"I" | b"L 8" => Ok(Command::Type { ascii: false }),
        [] => Err(Bad::Argument),
        _ => Err(Bad::Unsupported),
    }
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// `h1,h2,h3,h4,p1,p2`.
fn port(argument: &[u8]) -> Option<SocketAddr> {
    let parts: Option<Vec<u8>> = argument.split(|byte| *byte == b',').map(number).collect();
    match parts?[..] {
        [a, b, c, d, high, low] => {
            let address = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
            Some(SocketAddr::new(address, u16::from_be_bytes([high, low])))
        }
        _ => None,
    }
}

/// `|1|132.235.1.2|6275|` (RFC 2428).
fn eprt(argument: &[u8]) -> Result<SocketAddr, Bad> {
    let delimiter = *argument.first().ok_or(Bad::Argument)?;
    let parts: Vec<&[u8]> = argument.split(|byte| *byte == delimiter).collect();
    let [[], protocol, address, port, []] = parts[..] else {
        return Err(Bad::Argument);
    };
    let address = std::str::from_utf8(address).map_err(|_| Bad::Argument)?;
    let address: IpAddr = match protocol {
        b"1" => IpAddr::V4(address.parse().map_err(|_| Bad::Argument)?),
        b"2" => IpAddr::V6(address.parse().map_err(|_| Bad::Argument)?),
        _ => return Err(Bad::Protocol),
    };
    Ok(SocketAddr::new(address, number(port).ok_or(Bad::Argument)?))
}

fn epsv(argument: &[u8]) -> Result<Epsv, Bad> {
    match &argument.to_ascii_uppercase()[..] {
        b"" => Ok(Epsv::Any),
        b"ALL" => Ok(Epsv::All),
        other => number(other).map(Epsv::Protocol).ok_or(Bad::Argument),
    }
}

/// `YYYYMMDDHHMMSS path`.
fn set_modified(argument: &[u8]) -> Result<Command, Bad> {
    let at = argument
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or(Bad::Argument)?;
    let (time, path) = (&argument[..at], &argument[at + 1..]);
    let seconds = super::time::parse(time).ok_or(Bad::Argument)?;
    match path {
        [] => Err(Bad::Argument),
        bytes => Ok(Command::SetModified {
            seconds,
            path: bytes.to_vec(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn verbs_are_of_any_case_and_paths_of_any_bytes() {
        assert_eq!(parse(b"quit"), Ok(Command::Quit));
        assert_eq!(parse(b"RETR  a b"), Ok(Command::Retrieve(b" a b".to_vec())));
        assert_eq!(
            parse(b"retr \xff\xfe"),
            Ok(Command::Retrieve(b"\xff\xfe".to_vec()))
        );
        assert_eq!(parse(b"RETR"), Err(Bad::Argument));
        for line in [
            &b"RETR a\0b"[..],
            b"MLST a\0b",
            b"LIST -l a\0b",
            b"STAT a\0b",
        ] {
            assert_eq!(parse(line), Err(Bad::Argument));
        }
        assert_eq!(
            parse(b"LIST -la dir"),
            Ok(Command::List(b"-la dir".to_vec()))
        );
        assert_eq!(parse(b"TYPE l 8"), Ok(Command::Type { ascii: false }));
        assert_eq!(parse(b"TYPE E"), Err(Bad::Unsupported));
        assert_eq!(
            parse(b"REST 18446744073709551615"),
            Ok(Command::Rest(u64::MAX))
        );
        assert_eq!(parse(b"REST 18446744073709551616"), Err(Bad::Argument));
        assert_eq!(parse(b"REST +1"), Err(Bad::Argument));
        assert_eq!(parse(b""), Err(Bad::Unknown));
    }

    #[test]
    fn addresses_of_data_connections() {
        let port = Command::Port("127.0.0.1:1025".parse().unwrap());
        assert_eq!(parse(b"PORT 127,0,0,1,4,1"), Ok(port));
        let address = |text: &str| Ok(Command::ExtendedPort(text.parse().unwrap()));
        assert_eq!(parse(b"EPRT |1|10.0.0.1|6275|"), address("10.0.0.1:6275"));
        assert_eq!(parse(b"EPRT !2!::1!6275!"), address("[::1]:6275"));
        for bad in [
            &b"PORT 1,2,3,4,5"[..],
            b"PORT 1,2,3,4,5,256",
            b"PORT 1,2,3,4,5,+6",
            b"EPRT |1|::1|6275|",
            b"EPRT |1|10.0.0.1|6275",
            b"EPRT",
        ] {
            assert_eq!(
                parse(bad),
                Err(Bad::Argument),
                "{}",
                String::from_utf8_lossy(bad)
            );
        }
        assert_eq!(parse(b"EPRT |3|10.0.0.1|6275|"), Err(Bad::Protocol));
        assert_eq!(parse(b"EPSV all"), Ok(Command::Epsv(Epsv::All)));
        assert_eq!(parse(b"EPSV 2"), Ok(Command::Epsv(Epsv::Protocol(2))));
    }

    #[test]
    fn a_time_precedes_its_path() {
        let command = Command::SetModified {
            seconds: 1_000_000_000,
            path: b"a b".to_vec(),
        };
        assert_eq!(parse(b"MFMT 20010909014640 a b"), Ok(command));
        assert_eq!(parse(b"MFMT 2001 a"), Err(Bad::Argument));
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }

        #[test]
        fn any_argument_is_parsed_or_refused(
            verb in "(PORT|EPRT|EPSV|REST|MFMT|TYPE|LIST|PROT)",
            argument in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut line = verb.into_bytes();
            line.push(b' ');
            line.extend(argument);
            let _ = parse(&line);
        }
    }
}
