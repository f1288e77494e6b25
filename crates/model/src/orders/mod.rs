//! What must hold in every interleaving.

mod end;
mod hand_over;
mod take_over;
mod work;
