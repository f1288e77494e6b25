//! Buffers where memory may be short (`RLIMIT_AS`, `RLIMIT_DATA`): what does
//! without a large one has a smaller one, and otherwise fails with `ENOMEM`.
//! An allocation of the standard library's ends the process instead.

use cordboard::Errno;

/// The least that is worth a call.
const LEAST: usize = 4096;

/// A buffer of `most` elements; where there is no memory for it, a shorter one,
/// down to a page's worth.
///
/// # Errors
///
/// `ENOMEM`: not even that.
pub fn buffer<T: Clone>(value: T, most: usize) -> Result<Vec<T>, Errno> {
    let mut length = most;
    loop {
        let mut buffer = Vec::new();
        if buffer.try_reserve_exact(length).is_ok() {
            buffer.resize(length, value);
            return Ok(buffer);
        }
        if length <= LEAST {
            return Err(Errno::ENOMEM);
        }
        length = (length / 2).max(LEAST.min(most));
    }
}

/// Makes a buffer this long, or leaves it as it is.
///
/// # Errors
///
/// `ENOMEM`.
pub fn grow(buffer: &mut Vec<u8>, length: usize) -> Result<(), Errno> {
    let more = length.saturating_sub(buffer.len());
    buffer.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
    buffer.resize(length, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_is() {
        assert_eq!(buffer(0u8, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(buffer(0u8, 100).unwrap().len(), 100);
        let mut small = vec![7; 10];
        assert_eq!(grow(&mut small, usize::MAX), Err(Errno::ENOMEM));
        assert_eq!(small, [7; 10]);
        grow(&mut small, 12).unwrap();
        assert_eq!(small[9..], [7, 0, 0]);
    }
}
