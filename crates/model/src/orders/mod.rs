//! Properties that must hold in every interleaving.

mod end;
mod hand_over;
mod reactor;
mod take_over;
mod work;
