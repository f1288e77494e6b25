//! Error numbers with their names and meanings.

use std::fmt;
use std::io;

/// An error number of the kernel.
///
/// `Display` writes the meaning and the name: `No space left on device (ENOSPC)`;
/// [`Errno::name`] returns the name alone, as in the command's JSON line. Reference:
/// `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Errno = Errno(libc::$name);
            )*

            /// Returns the symbolic name, such as `"ENOSPC"`; `None` for a number that
            /// Linux does not define.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR
    EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK
    EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC
    ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET
    ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM
    EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE
    ERFKILL EHWPOISON
}

impl Errno {
    /// Makes an errno from its number.
    pub const fn from_raw(number: i32) -> Errno {
        Errno(number)
    }

    /// Returns the number, for `io::Error::from_raw_os_error` and C.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Returns whether the errno means that the system call does not exist or that a
    /// filter refuses it. The same errno may concern the file, which is sealed or
    /// immutable.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(self, Errno::ENOSYS | Errno::EPERM | Errno::EACCES)
    }

    /// As [`Errno::is_refusal`], and true of `EINVAL`, which some filters return for the calls
    /// that they refuse. For calls to which the kernel does not return `EINVAL`, or whose
    /// fallback is also right if it does.
    pub(crate) fn is_refusal_or_invalid(self) -> bool {
        self == Errno::EINVAL || self.is_refusal()
    }

    /// Returns its description, as `strerror(3)`.
    pub fn meaning(self) -> String {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        match text.rfind(" (os error ") {
            Some(end) => text[..end].to_owned(),
            None => text,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.meaning()),
            None => write!(f, "{} (errno {})", self.meaning(), self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_meanings() {
        assert_eq!(Errno::ENOSPC.name(), Some("ENOSPC"));
        assert_eq!(
            Errno::ENOSPC.to_string(),
            "No space left on device (ENOSPC)"
        );
        assert_eq!(Errno::from_raw(9999).name(), None);
        assert_eq!(format!("{:?}", Errno::EPIPE), "EPIPE");
    }

    /// A block device fails with `EBADE` if another host has reserved it (`blk_errors`,
    /// block/blk-core.c). A server of FUSE may return any number.
    #[test]
    fn each_number_with_a_meaning_has_a_name() {
        for number in 1..4096 {
            let errno = Errno::from_raw(number);
            let meaning = errno.meaning();
            // Of the GNU C library, and of musl.
            let unknown = ["Unknown error", "No error information"];
            if !unknown.iter().any(|text| meaning.starts_with(text)) {
                assert!(errno.name().is_some(), "{number}: {meaning}");
            }
        }
        assert_eq!(Errno::EBADE.name(), Some("EBADE"));
    }
}
