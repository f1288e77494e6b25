//! A value that is not dropped but passed to a function.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A value that a function consumes when this is dropped, also by a panic.
pub(crate) struct WithEnd<T> {
    value: ManuallyDrop<T>,
    end: fn(T),
}

impl<T> WithEnd<T> {
    pub(crate) fn new(value: T, end: fn(T)) -> WithEnd<T> {
        let value = ManuallyDrop::new(value);
        WithEnd { value, end }
    }
}

impl<T> Drop for WithEnd<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used after.
        (self.end)(unsafe { ManuallyDrop::take(&mut self.value) });
    }
}

impl<T> Deref for WithEnd<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for WithEnd<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
