//! The environment variables, read at one time.

use super::{Backend, Request, Switches, Tune};
use crate::errno::Errno;

/// What the environment variables say, for transfers that a thread of the library makes later.
///
/// `getenv(3)` must not run while another thread changes the environment, and the program does not
/// know when a thread of the library makes a transfer. So the caller's thread reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Environment {
    switches: Switches,
    tune: Tune,
    pub(crate) backend: Backend,
}

impl Environment {
    /// # Errors
    ///
    /// `EINVAL`: the value of a variable is unknown.
    pub(crate) fn read() -> Result<Environment, Errno> {
        Ok(Environment {
            switches: Switches::from_env().map_err(|_| Errno::EINVAL)?,
            tune: Tune::from_env().map_err(|_| Errno::EINVAL)?,
            backend: Backend::from_env().map_err(|_| Errno::EINVAL)?,
        })
    }

    /// Returns a request that does not depend on the environment.
    pub(crate) fn request(self) -> Request {
        Request {
            switches: Some(self.switches),
            tune: Some(self.tune),
            ..Request::default()
        }
    }
}
