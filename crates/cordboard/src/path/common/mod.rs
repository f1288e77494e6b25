//! Operations that several paths share.

pub(crate) mod checks;
pub(crate) mod claim;
pub(crate) mod enlarge;
pub(crate) mod hole_check;
pub(crate) mod holes;
pub(crate) mod in_place;
pub(crate) mod lengthen;
pub(crate) mod preallocate;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod surplus;
pub(crate) mod terminal;
