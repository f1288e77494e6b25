//! Buffers when memory is short (`RLIMIT_AS`, `RLIMIT_DATA`): code that can do
//! with less gets a smaller one. The other allocations fail with `ENOMEM`. A
//! failing allocation of the standard library ends the process instead.

use cordboard::Errno;

/// The smallest useful buffer.
const LEAST: usize = 4096;
/// The bytes that a buffer leaves for the allocations of the standard library.
const SPARE: usize = 192 << 10;

/// Returns a buffer of `most` elements, or a shorter one if memory is short,
/// down to 4096. Leaves 192 KiB of memory.
///
/// # Errors
///
/// `ENOMEM`: no memory for that either.
pub fn buffer<T: Clone>(value: T, most: usize) -> Result<Vec<T>, Errno> {
    let mut length = most;
    loop {
        let (mut buffer, mut spare) = (Vec::new(), Vec::<u8>::new());
        let is_made = buffer.try_reserve_exact(length).is_ok();
        if is_made && spare.try_reserve_exact(SPARE).is_ok() {
            buffer.resize(length, value);
            return Ok(buffer);
        }
        if length <= LEAST {
            return Err(Errno::ENOMEM);
        }
        length = (length / 2).max(LEAST.min(most));
    }
}

/// Checks that 192 KiB of memory are left.
///
/// # Errors
///
/// `ENOMEM`: less is left.
pub fn check_spare() -> Result<(), Errno> {
    let spare = Vec::<u8>::new().try_reserve_exact(SPARE);
    spare.map_err(|_| Errno::ENOMEM)
}

/// Returns 512 KiB of memory that is not used: more than a transfer with stages allocates beside
/// the stages.
///
/// # Errors
///
/// `ENOMEM`: less is left.
pub fn reserve() -> Result<Vec<u8>, Errno> {
    const TRANSFER: usize = 512 << 10;
    let mut reserve = Vec::new();
    let is_made = reserve.try_reserve_exact(TRANSFER);
    is_made.map(|()| reserve).map_err(|_| Errno::ENOMEM)
}

/// Makes a buffer this long, or leaves it unchanged.
///
/// # Errors
///
/// `ENOMEM`: no memory is available.
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
