//! The connections of this machine, as the kernel shows them (`/proc/net/tcp`, proc(5)).

/// The states before either side has ended the connection, and after the peer has ended it
/// (include/net/tcp_states.h).
pub const ESTABLISHED: u32 = 1;
pub const CLOSE_WAIT: u32 = 8;

/// The state of the connection from one port to another.
pub fn state(ports: [u16; 2]) -> Option<u32> {
    Some(found(ports)?.0)
}

/// The number of bytes that have arrived there, and that its process has not read.
pub fn received(ports: [u16; 2]) -> Option<u32> {
    Some(found(ports)?.1)
}

fn found(ports: [u16; 2]) -> Option<(u32, u32)> {
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ports = ports.map(|port| format!(":{port:04X}"));
    let hex = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let mut fields = all.lines().map(|line| line.split_whitespace().skip(1));
    fields.find_map(|mut fields| {
        let is_it = ports
            .iter()
            .all(|port| fields.next().is_some_and(|at| at.ends_with(port)));
        let (state, queues) = is_it.then(|| Some((fields.next()?, fields.next()?)))??;
        Some((hex(state), hex(queues.split_once(':')?.1)))
    })
}
