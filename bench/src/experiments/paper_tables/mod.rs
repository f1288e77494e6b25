//! The papers' two tables, on the papers' devices.

mod columns;
mod copiers;
pub mod devices;
mod rounds;
mod side_by_side;
pub mod table1;
pub mod table2;
