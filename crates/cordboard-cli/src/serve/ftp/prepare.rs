//! Work before the first client, which would otherwise wait for it.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use cordboard::cue::{Command, Record};
use cordboard::{Cue, Errno};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most descriptors of a client: a transfer with TLS uses about as many.
const OF_CLIENT: u64 = 16;
/// The most descriptors for which room is made. The kernel uses 8 bytes for each.
const MOST: u64 = 1 << 16;

/// Raises the limit of descriptors to the hard limit, and makes room for those of all clients.
///
/// The kernel enlarges a full table of descriptors. If threads share it, all of them wait for a grace
/// period of RCU, some milliseconds, when they open a descriptor (`expand_fdtable`, fs/file.c). The
/// table of a process with one thread is replaced at once. It does not become smaller.
pub fn descriptors(any: impl AsFd, clients: usize) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    // If this fails, the server accepts fewer clients.
    let _ = setrlimit(Resource::Nofile, all);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let of_all = (clients as u64).saturating_mul(OF_CLIENT);
    let last = of_all.min(MOST).min(limit).saturating_sub(1);
    // If the call fails (EINVAL, EMFILE), the table grows once it is full.
    if let Ok(number) = i32::try_from(last) {
        let _ = fcntl_dupfd_cloexec(any, number);
    }
}

/// Starts the threads of the library, by a transfer of one byte. If this fails, the first
/// transfer starts them.
pub fn threads() {
    let _ = move_a_byte();
}

fn move_a_byte() -> Result<(), Errno> {
    let io = |error: std::io::Error| crate::output::errno_of(&error);
    let mut source = File::from(cordboard::memory_file(c"cordboard")?);
    source.write_all(&[0]).map_err(io)?;
    rustix::fs::seek(&source, rustix::fs::SeekFrom::Start(0))?;
    let (near, _far) = UnixStream::pair().map_err(io)?;
    near.set_nonblocking(true).map_err(io)?;
    let mut cue = Cue::new(&source, &near)?;
    cue.send(Command::WriteToEnd)?;
    while let Some(record) = cue.receive()? {
        if matches!(record, Record::Done(_) | Record::Refused { .. }) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_has_room_for_all_clients() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(testkit::child::in_a_child(|| {
            descriptors(std::io::stderr(), 20);
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            let size: u64 = size.unwrap().trim().parse().unwrap();
            size >= maximum.min(20 * OF_CLIENT)
        }));
    }

    #[test]
    fn a_byte_is_moved() {
        move_a_byte().unwrap();
    }
}
