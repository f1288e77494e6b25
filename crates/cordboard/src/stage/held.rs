//! A buffer that is filled at its end and emptied at its front.

use crate::errno::Errno;
use crate::sys::Buffer;

/// A first-in, first-out buffer of bytes.
pub(crate) struct Held {
    /// Recycled on the thread that drops this value.
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
}

impl Held {
    /// Makes a buffer of at least this many bytes.
    pub(crate) fn with_capacity(length: usize) -> Result<Held, Errno> {
        Ok(Held {
            buffer: Some(Buffer::with_capacity(length)?),
            start: 0,
            end: 0,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns its content.
    pub(crate) fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        &buffer[self.start..self.end]
    }

    /// Removes bytes from the front.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Removes bytes from the front, and returns them.
    pub(crate) fn take(&mut self, bytes: usize) -> &[u8] {
        self.took(bytes);
        let buffer = self.buffer.as_deref().unwrap_or_default();
        &buffer[self.start - bytes..self.start]
    }

    /// Moves the content to the beginning, and returns the room after it.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let buffer = self.buffer.as_deref_mut().unwrap_or_default();
        if self.start > 0 {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut buffer[self.end..]
    }

    /// Counts bytes that were written to the room as content.
    pub(crate) fn put(&mut self, bytes: usize) {
        self.end += bytes;
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            buffer.recycle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_keeps_its_order() {
        let mut held = Held::with_capacity(1).unwrap();
        let length = held.room().len();
        held.room()[..3].copy_from_slice(b"abc");
        held.put(3);
        assert_eq!(held.take(1), b"a");
        assert_eq!(held.bytes(), b"bc");
        assert_eq!(held.room().len(), length - 2);
        held.room()[0] = b'd';
        held.put(1);
        assert_eq!((held.bytes(), held.len()), (&b"bcd"[..], 3));
        held.clear();
        assert!(held.is_empty() && held.room().len() == length);
    }
}
