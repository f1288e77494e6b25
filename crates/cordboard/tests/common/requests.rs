//! Requests that name the paths to take.

use cordboard::{DataPath, Request, Switches};

/// Returns a request that allows these paths only.
pub fn only(paths: &[DataPath]) -> Request {
    Request {
        switches: Some(Switches::only(paths)),
        ..Request::default()
    }
}

/// Returns a request that allows every path, whatever the environment says.
pub fn any() -> Request {
    only(DataPath::ALL)
}
