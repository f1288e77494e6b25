//! What must hold in every order.

mod end;
mod hand_over;
mod take_over;
mod work;
