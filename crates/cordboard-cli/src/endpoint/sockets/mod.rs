//! Endpoints that are sockets.

pub mod linger;
pub mod net;
mod operand;
mod stale;
pub mod unix;
pub mod unix_socket;

pub use operand::Operand;
