//! A mode and an access control list that depend on each other.

use super::{SETATTR, WRITE, word, words};

const SETXATTR: u32 = 21;
const GETXATTR: u32 = 22;
const LISTXATTR: u32 = 23;
const REMOVEXATTR: u32 = 24;
/// A bit of `fuse_setattr_in::valid`: the mode is set.
const MODE: u32 = 1;
const LIST: &[u8] = b"system.nfs4_acl\0";

/// The mode and the NFSv4 list of a file, as of ZFS: a change of the mode discards the list
/// (`aclmode=discard`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The mode, with the type of the file.
    pub mode: u32,
    /// The list, if there is one: three octal digits, which are the mode that it
    /// determines, and any other bytes.
    pub list: Option<Vec<u8>>,
    /// With a list, the mode cannot be changed (`aclmode=restricted`).
    pub restricted: bool,
    /// The errno of each change of the list; 0: none.
    pub refuses: i32,
    /// The mode does not depend on the list: a FUSE file system that stores any attribute.
    pub apart: bool,
    /// The mode after each change of the mode or the list, and whether there was a list.
    pub seen: Vec<(u32, bool)>,
    /// The mode at the last write, and whether there was a list.
    pub at_write: Option<(u32, bool)>,
}

impl Permissions {
    fn state(&self) -> (u32, bool) {
        (self.mode & 0o7777, self.list.is_some())
    }

    fn see(&mut self) {
        self.seen.push(self.state());
    }

    /// Answers a request; `None`: it is another one.
    pub(super) fn answer(&mut self, opcode: u32, body: &[u8]) -> Option<Result<Vec<u8>, i32>> {
        match opcode {
            SETATTR if word(body, 0) & MODE != 0 => {
                if self.restricted && self.list.is_some() {
                    return Some(Err(-libc::EPERM));
                }
                // struct fuse_setattr_in: behind six numbers of 64 bits and six of 32 bits.
                self.mode = self.mode & libc::S_IFMT | word(body, 68) & 0o7777;
                if !self.apart {
                    self.list = None;
                }
                self.see();
                None
            }
            // struct fuse_setxattr_in, then the name and the value.
            SETXATTR => Some(match body[8..].strip_prefix(LIST) {
                Some(_) if self.refuses != 0 => Err(-self.refuses),
                Some(value) => {
                    let digits = value
                        .first_chunk()
                        .and_then(|d: &[u8; 3]| str::from_utf8(d).ok());
                    let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
                    let mode = mode.expect("a list of the tests");
                    if !self.apart {
                        self.mode = self.mode & !0o777 | mode;
                    }
                    self.list = Some(value[..word(body, 0) as usize].to_vec());
                    self.see();
                    Ok(Vec::new())
                }
                None => Err(-libc::EOPNOTSUPP),
            }),
            // struct fuse_getxattr_in, then the name.
            GETXATTR => Some(match &self.list {
                Some(list) if body[8..].starts_with(LIST) => given(body, list),
                _ => Err(-libc::ENODATA),
            }),
            LISTXATTR => Some(given(body, if self.list.is_some() { LIST } else { b"" })),
            REMOVEXATTR => Some(Err(-libc::ENODATA)),
            WRITE => {
                self.at_write = Some(self.state());
                None
            }
            _ => None,
        }
    }
}

/// The value, or its length if that is requested by a size of 0.
fn given(body: &[u8], value: &[u8]) -> Result<Vec<u8>, i32> {
    match word(body, 0) as usize {
        0 => Ok(words(&[value.len() as u32, 0])),
        room if room < value.len() => Err(-libc::ERANGE),
        _ => Ok(value.to_vec()),
    }
}
