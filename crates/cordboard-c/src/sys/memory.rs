//! Access to the caller's structures, buffers and strings.
//!
//! Structures begin with their size, so that they can grow. The missing fields
//! of a shorter structure are read as 0; the unknown bytes of a longer
//! structure must be 0. This is the rule of `openat2(2)` and `clone3(2)`.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{MaybeUninit, offset_of};

use cordboard::Errno;

use crate::types::{cord_report, cord_request, cord_status};

/// A structure that begins with its size and can grow.
///
/// # Safety
///
/// `repr(C)`, a `usize` first, valid with all bits zero, no padding that
/// matters.
pub(crate) unsafe trait Extensible: Copy {
    /// The sizes of earlier versions. Each is the end of a field, and stays
    /// listed when fields are added.
    const EARLIER_SIZES: &[usize];
}

// SAFETY: integers and a pointer behind a usize.
unsafe impl Extensible for cord_request {
    const EARLIER_SIZES: &[usize] = &[offset_of!(cord_request, direct)];
}
// SAFETY: integers behind a usize.
unsafe impl Extensible for cord_report {
    const EARLIER_SIZES: &[usize] = &[offset_of!(cord_report, dropped)];
}
// SAFETY: integers behind a usize.
unsafe impl Extensible for cord_status {
    const EARLIER_SIZES: &[usize] = &[];
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(matches!(cord_request::EARLIER_SIZES, [72]) && size_of::<cord_request>() == 96);
    assert!(matches!(cord_report::EARLIER_SIZES, [160]) && size_of::<cord_report>() == 176);
    assert!(cord_status::EARLIER_SIZES.is_empty() && size_of::<cord_status>() == 96);
};

/// Reads the caller's structure.
///
/// # Errors
///
/// * `EFAULT`: NULL.
/// * `EINVAL`: a size that no version had.
/// * `E2BIG`: a field that this version does not know is not 0.
///
/// # Safety
///
/// Valid for reading as many bytes as its first field says, or NULL.
pub(crate) unsafe fn read_struct<T: Extensible>(pointer: *const T) -> Result<T, Errno> {
    // SAFETY: as the caller promises.
    let size = unsafe { struct_size(pointer)? };
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: both are valid for `known` bytes, and `value` is a local.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_to_nonoverlapping(value.as_mut_ptr().cast(), known);
    };
    // SAFETY: valid for `size` bytes; these are the last of them.
    let rest = unsafe {
        std::slice::from_raw_parts(pointer.cast::<u8>().wrapping_add(known), size - known)
    };
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    // SAFETY: zeroed, which the trait says is valid, then the caller's fields.
    Ok(unsafe { value.assume_init() })
}

/// Writes the caller's structure: the fields of the caller's version, and 0
/// behind them. `struct_size` stays as the caller set it.
///
/// # Errors
///
/// As [`read_struct`], without `E2BIG`.
///
/// # Safety
///
/// Valid for writing as many bytes as its first field says, or NULL.
pub(crate) unsafe fn write_struct<T: Extensible>(pointer: *mut T, value: &T) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    let size = unsafe { struct_size(pointer)? };
    let (out, known) = (pointer.cast::<u8>(), size.min(size_of::<T>()));
    let first = size_of::<usize>();
    let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(first);
    // SAFETY: behind the size, up to the end of the shorter one.
    unsafe { from.copy_to_nonoverlapping(out.wrapping_add(first), known - first) };
    // SAFETY: the rest of the caller's structure.
    unsafe { out.wrapping_add(known).write_bytes(0, size - known) };
    Ok(())
}

/// Checks the size of a structure before it is written.
///
/// # Errors
///
/// As [`write_struct`].
///
/// # Safety
///
/// Its first field is valid for reading, or the pointer is NULL.
pub(crate) unsafe fn check_size<T: Extensible>(pointer: *const T) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe { struct_size(pointer) }.map(drop)
}

/// The maximum of `struct_size`. No version of a structure will be larger, so a
/// larger value is uninitialised.
const MAX_SIZE: usize = 4096;

unsafe fn struct_size<T: Extensible>(pointer: *const T) -> Result<usize, Errno> {
    if pointer.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the first field, which the caller promises can be read.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    // A later version may have any size that its alignment allows.
    let later = size >= size_of::<T>() && size <= MAX_SIZE && size.is_multiple_of(align_of::<T>());
    match later || T::EARLIER_SIZES.contains(&size) {
        true => Ok(size),
        false => Err(Errno::EINVAL),
    }
}

/// Returns the caller's buffer; an empty one if the size is 0.
///
/// # Errors
///
/// `EFAULT`: NULL, and the size is not 0.
///
/// # Safety
///
/// Valid for writing `size` bytes while it is used, or NULL.
pub(crate) unsafe fn buffer<'a>(
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

/// Returns the caller's bytes; none if the size is 0.
///
/// # Errors
///
/// `EFAULT`: NULL, and the size is not 0.
///
/// # Safety
///
/// Valid for reading `size` bytes while it is used, or NULL.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const std::ffi::c_void,
    size: usize,
) -> Result<&'a [u8], Errno> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Errno::EFAULT);
    }
    let size = size.min(isize::MAX as usize);
    // SAFETY: as the caller promises; no object is larger than isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) })
}

/// Returns the caller's string; `None` for NULL.
///
/// # Errors
///
/// `EINVAL`: not UTF-8.
///
/// # Safety
///
/// A string that ends with a 0 byte and stays valid while it is used, or NULL.
pub(crate) unsafe fn string<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Errno::EINVAL)
}

/// A pointer that is only passed back to the caller's own function.
pub(crate) struct UserData(*mut c_void);

// SAFETY: never dereferenced here; the caller knows that the function may be
// called on another thread.
unsafe impl Send for UserData {}

impl UserData {
    pub(crate) fn new(pointer: *mut c_void) -> UserData {
        UserData(pointer)
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Writes as much of a text as fits, with a 0 byte at its end. Returns the
/// length of the whole text, as `snprintf(3)` does.
pub(crate) fn write_string(buffer: &mut [MaybeUninit<u8>], text: &str) -> usize {
    if let Some(most) = buffer.len().checked_sub(1) {
        let length = text.len().min(most);
        for (to, from) in buffer.iter_mut().zip(text.as_bytes()[..length].iter()) {
            to.write(*from);
        }
        buffer[length].write(0);
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
    unsafe impl Extensible for Today {
        const EARLIER_SIZES: &[usize] = &[16];
    }

    /// Reads the structure of another version: 8 bytes each word.
    fn read(words: &[u64]) -> Result<Today, Errno> {
        // SAFETY: the slice is at least as long as its first word says.
        unsafe { read_struct(words.as_ptr().cast::<Today>()) }
    }

    #[test]
    fn structures_of_other_versions() {
        let today = |old, new| Today {
            struct_size: 24,
            old,
            new,
        };
        assert_eq!(read(&[24, 1, 2]), Ok(today(1, 2)));
        let old = read(&[16, 1, 99]).unwrap();
        assert_eq!((old.old, old.new), (1, 0), "an older caller");
        assert_eq!(read(&[32, 1, 2, 0]).map(|t| t.new), Ok(2), "a newer one");
        assert_eq!(read(&[32, 1, 2, 1]), Err(Errno::E2BIG));
        assert_eq!(read(&[0, 1, 2]), Err(Errno::EINVAL), "not initialised");
        for no_version in [8, 15, 17, 23, 25, 4104, u64::MAX] {
            let result = read(&[no_version, 1, 2, 0]);
            assert_eq!(result, Err(Errno::EINVAL), "{no_version}");
        }
        assert_eq!(
            // SAFETY: NULL is allowed.
            unsafe { read_struct::<Today>(std::ptr::null()) },
            Err(Errno::EFAULT)
        );

        for (size, expected) in [
            (16u64, [16u64, 1, 9, 9]),
            (24, [24, 1, 2, 9]),
            (32, [32, 1, 2, 0]),
        ] {
            let mut words = [size, 9, 9, 9];
            // SAFETY: the array is as long as its first word says.
            unsafe { write_struct(words.as_mut_ptr().cast(), &today(1, 2)) }.unwrap();
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn text_is_cut_and_terminated() {
        let mut buffer = [MaybeUninit::new(b'x'); 4];
        assert_eq!(write_string(&mut buffer, "splice"), 6);
        // SAFETY: initialised above.
        let bytes = buffer.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(&bytes, b"spl\0");
        assert_eq!(write_string(&mut [], "splice"), 6);
    }
}
