//! Reading and filling in the structures of a caller.
//!
//! They begin with their size, so that they can grow: what is shorter than
//! ours has zeros for the rest, what is longer must have zeros there. The same
//! rule as `openat2(2)`'s and `clone3(2)`'s.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{MaybeUninit, offset_of};

use cordboard::Errno;

use crate::types::{cord_report, cord_request, cord_status};

/// A structure that begins with its size, and of which zeros are a value.
///
/// # Safety
///
/// `repr(C)`, a `usize` first, valid with all bits zero, no padding that
/// matters.
pub(crate) unsafe trait Grows: Copy {
    /// The sizes that it had in earlier versions. They end where a field does,
    /// and do not move when others are added.
    const EARLIER: &[usize];
}

// SAFETY: integers and a pointer behind a usize.
unsafe impl Grows for cord_request {
    const EARLIER: &[usize] = &[offset_of!(cord_request, direct)];
}
// SAFETY: integers behind a usize.
unsafe impl Grows for cord_report {
    const EARLIER: &[usize] = &[];
}
// SAFETY: integers behind a usize.
unsafe impl Grows for cord_status {
    const EARLIER: &[usize] = &[];
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(matches!(cord_request::EARLIER, [72]) && size_of::<cord_request>() == 96);
    assert!(cord_report::EARLIER.is_empty() && size_of::<cord_report>() == 160);
    assert!(cord_status::EARLIER.is_empty() && size_of::<cord_status>() == 96);
};

/// The caller's structure.
///
/// # Errors
///
/// `EFAULT` for NULL, `EINVAL` for a size that no version had, `E2BIG` where
/// it says something that this version does not know.
///
/// # Safety
///
/// Valid for reading as many bytes as its first field says, or NULL.
pub(crate) unsafe fn take<T: Grows>(pointer: *const T) -> Result<T, Errno> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_at(pointer)? };
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: both are valid for `known` bytes, and ours is no one else's.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_to_nonoverlapping(value.as_mut_ptr().cast(), known);
    };
    // SAFETY: valid for `size` bytes, of which these are the rest.
    let rest = unsafe {
        std::slice::from_raw_parts(pointer.cast::<u8>().wrapping_add(known), size - known)
    };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    // SAFETY: zeroed, which the trait says is valid, and then the caller's.
    Ok(unsafe { value.assume_init() })
}

/// Fills in the caller's structure as far as the caller knows it. Its size
/// stays as the caller gave it.
///
/// # Errors
///
/// As [`take`], less `E2BIG`.
///
/// # Safety
///
/// Valid for writing as many bytes as its first field says, or NULL.
pub(crate) unsafe fn give<T: Grows>(pointer: *mut T, value: &T) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    let size = unsafe { size_at(pointer)? };
    let (out, known) = (pointer.cast::<u8>(), size.min(size_of::<T>()));
    let first = size_of::<usize>();
    let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(first);
    // SAFETY: past the size, up to what both have.
    unsafe { from.copy_to_nonoverlapping(out.wrapping_add(first), known - first) };
    // SAFETY: the rest of the caller's.
    unsafe { out.wrapping_add(known).write_bytes(0, size - known) };
    Ok(())
}

/// Whether it could be filled in.
///
/// # Errors
///
/// As [`give`].
///
/// # Safety
///
/// Its first field is valid for reading, or it is NULL.
pub(crate) unsafe fn check<T: Grows>(pointer: *const T) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe { size_at(pointer) }.map(drop)
}

/// No structure of ours will be larger; a size that is was never filled in.
const SANE: usize = 4096;

unsafe fn size_at<T: Grows>(pointer: *const T) -> Result<usize, Errno> {
    if pointer.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: its first field, which the caller promises can be read.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    // A later version's may have any size that a structure can have.
    let later = size >= size_of::<T>() && size <= SANE && size.is_multiple_of(align_of::<T>());
    match later || T::EARLIER.contains(&size) {
        true => Ok(size),
        false => Err(Errno::EINVAL),
    }
}

/// The caller's room for bytes; none where its size is 0.
///
/// # Errors
///
/// `EFAULT` for NULL with a size.
///
/// # Safety
///
/// Valid for writing `size` bytes while it is used, or NULL.
pub(crate) unsafe fn room<'a>(
    pointer: *mut u8,
    size: usize,
) -> Result<&'a mut [MaybeUninit<u8>], Errno> {
    match (pointer.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::EFAULT),
        // SAFETY: as the caller promises; no object is larger than isize::MAX.
        (false, size) => Ok(unsafe {
            std::slice::from_raw_parts_mut(pointer.cast(), size.min(isize::MAX as usize))
        }),
    }
}

/// A caller's string; `None` for NULL.
///
/// # Errors
///
/// `EINVAL` for what is no UTF-8.
///
/// # Safety
///
/// A string that ends in 0 and stays while it is used, or NULL.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Errno::EINVAL)
}

/// A pointer that is only handed back to the caller's own function.
pub(crate) struct Opaque(*mut c_void);

// SAFETY: never followed here; the caller knows that the function may be
// called on another thread.
unsafe impl Send for Opaque {}

impl Opaque {
    pub(crate) fn new(pointer: *mut c_void) -> Opaque {
        Opaque(pointer)
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// As much of a text as fits, ended by 0; as `snprintf(3)`, its whole length.
pub(crate) fn give_text(room: &mut [MaybeUninit<u8>], text: &str) -> usize {
    if let Some(most) = room.len().checked_sub(1) {
        let length = text.len().min(most);
        for (to, from) in room.iter_mut().zip(text.as_bytes()[..length].iter()) {
            to.write(*from);
        }
        room[length].write(0);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Today {
        struct_size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: integers behind a usize.
    unsafe impl Grows for Today {
        const EARLIER: &[usize] = &[16];
    }

    /// What a caller of another version has: 8 bytes each.
    fn taken(words: &[u64]) -> Result<Today, Errno> {
        // SAFETY: the slice is longer than its first word says.
        unsafe { take(words.as_ptr().cast::<Today>()) }
    }

    #[test]
    fn structures_of_other_versions() {
        let today = |old, new| Today {
            struct_size: 24,
            old,
            new,
        };
        assert_eq!(taken(&[24, 1, 2]), Ok(today(1, 2)));
        let old = taken(&[16, 1, 99]).unwrap();
        assert_eq!((old.old, old.new), (1, 0), "an older caller");
        assert_eq!(taken(&[32, 1, 2, 0]).map(|t| t.new), Ok(2), "a newer one");
        assert_eq!(taken(&[32, 1, 2, 1]), Err(Errno::E2BIG));
        assert_eq!(taken(&[0, 1, 2]), Err(Errno::EINVAL), "never filled in");
        for no_version in [8, 15, 17, 23, 25, 4104, u64::MAX] {
            let taken = taken(&[no_version, 1, 2, 0]);
            assert_eq!(taken, Err(Errno::EINVAL), "{no_version}");
        }
        assert_eq!(
            // SAFETY: NULL is allowed.
            unsafe { take::<Today>(std::ptr::null()) },
            Err(Errno::EFAULT)
        );

        for (size, expected) in [
            (16u64, [16u64, 1, 9, 9]),
            (24, [24, 1, 2, 9]),
            (32, [32, 1, 2, 0]),
        ] {
            let mut words = [size, 9, 9, 9];
            // SAFETY: the array is as long as its first word says.
            unsafe { give(words.as_mut_ptr().cast(), &today(1, 2)) }.unwrap();
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn text_is_cut_and_ended() {
        let mut room = [MaybeUninit::new(b'x'); 4];
        assert_eq!(give_text(&mut room, "splice"), 6);
        // SAFETY: filled in at the start.
        let bytes = room.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(&bytes, b"spl\0");
        assert_eq!(give_text(&mut [], "splice"), 6);
    }
}
