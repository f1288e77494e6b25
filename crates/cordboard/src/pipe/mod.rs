//! Private pipes, the buffer that `splice(2)` needs if neither side is a pipe.
//! And the caller's pipes: their capacity and their packets.

mod adapted;
mod budget;
mod caller_pipe;
mod capacity;
mod channel;
mod enlarged;
mod hand_back;
mod nonblocking;
mod owned;
mod packet_reader;
pub(crate) mod packets;
mod pool;
mod resize;
mod shelf;
mod socket_pair;
mod state;
mod trial_read;

#[cfg(test)]
pub(crate) use budget::users;
pub(crate) use caller_pipe::CallerPipe;
pub(crate) use capacity::{LARGEST, capacity, default_capacity};
pub(crate) use channel::Channel;
pub(crate) use hand_back::read_out;
pub(crate) use nonblocking::{NoWait, is_ready, lacks_nowait};
pub(crate) use owned::OwnedPipe;
pub(crate) use packet_reader::{PacketReader, ReadMode, Unreadable};
pub(crate) use pool::{acquire, acquire_pair, release_pair};
pub(crate) use socket_pair::SocketPair;
pub(crate) use state::{Contents, FifoCheck, contents, has_ended, has_room};
