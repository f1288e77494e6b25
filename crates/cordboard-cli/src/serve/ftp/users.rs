//! Users and their passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use super::passwords::{Hash, NotVerified, Verifier};

/// A user that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub writes: bool,
}

/// The users from the file, by name.
pub struct Users {
    known: HashMap<String, (Hash, bool)>,
    anonymous: bool,
    /// A hash that is verified for unknown names, so that they take as long as the first
    /// known one. Without users, no name needs to be hidden.
    decoy: Option<Hash>,
    verifier: Verifier,
}

impl Users {
    /// Reads the file of users. Without one, only anonymous clients are known.
    ///
    /// # Errors
    ///
    /// A message with the number of the line that is wrong.
    pub fn read(file: Option<&Path>, anonymous: bool) -> Result<Users, String> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("{}: {error}", path.display()))?,
            None => String::new(),
        };
        let shown = file.map_or(String::new(), |path| path.display().to_string());
        Users::parse(&text, anonymous).map_err(|error| format!("{shown}: {error}"))
    }

    fn parse(text: &str, anonymous: bool) -> Result<Users, String> {
        let mut known = HashMap::new();
        let mut decoy = None;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |why: &str| format!("line {}: {why}", number + 1);
            let mut parts = line.split(':');
            let (Some(name), Some(hash)) = (parts.next(), parts.next()) else {
                return Err(bad("a line is NAME:HASH or NAME:HASH:ro"));
            };
            let writes = match (parts.next(), parts.next()) {
                (None | Some("rw"), None) => true,
                (Some("ro"), None) => false,
                _ => return Err(bad("a line is NAME:HASH or NAME:HASH:ro")),
            };
            let hash = Hash::parse(hash).map_err(|why| bad(&why))?;
            if name.is_empty() || is_anonymous(name) {
                return Err(bad("this name cannot have a password"));
            }
            decoy.get_or_insert_with(|| hash.without_password());
            if known.insert(name.to_owned(), (hash, writes)).is_some() {
                return Err(bad("the user is listed twice"));
            }
        }
        Ok(Users {
            known,
            anonymous,
            decoy,
            verifier: Verifier::default(),
        })
    }

    /// Returns whether this name logs in anonymously, with any password.
    pub fn takes_anonymous(&self, name: &str) -> bool {
        self.anonymous && is_anonymous(name)
    }

    /// Returns the user, if name and password are correct. `from`: the address of the client. Waits
    /// until this time for the verification.
    pub fn login(
        &self,
        name: &str,
        password: &[u8],
        from: IpAddr,
        until: Instant,
    ) -> Result<Option<User>, NotVerified> {
        if self.takes_anonymous(name) {
            return Ok(Some(User {
                name: "anonymous".to_owned(),
                writes: false,
            }));
        }
        let found = self.known.get(name);
        let Some(hash) = found.map(|(hash, _)| hash).or(self.decoy.as_ref()) else {
            return Ok(None);
        };
        let right = (self.verifier).verify((name, hash), password, from, until)?;
        Ok(found.filter(|_| right).map(|(_, writes)| User {
            name: name.to_owned(),
            writes: *writes,
        }))
    }

    /// The server is shutting down: ends the waits for verifications.
    pub fn close(&self) {
        self.verifier.close();
    }
}

/// Returns whether this is a name of anonymous clients.
pub fn is_anonymous(name: &str) -> bool {
    name.eq_ignore_ascii_case("anonymous") || name.eq_ignore_ascii_case("ftp")
}

#[cfg(test)]
mod tests {
    use super::super::passwords::hash;
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn only_the_right_password_is_taken() {
        let text = format!(
            "# users\n\nann:{}\nbob:{}:ro\n",
            hash(b"a").unwrap(),
            hash(b"b").unwrap()
        );
        let users = Users::parse(&text, false).unwrap();
        let user = |name: &str, writes| {
            Some(User {
                name: name.to_owned(),
                writes,
            })
        };
        let now = Instant::now();
        assert_eq!(users.login("ann", b"a", HERE, now), Ok(user("ann", true)));
        assert_eq!(users.login("bob", b"b", HERE, now), Ok(user("bob", false)));
        for (name, password) in [("ann", b"b"), ("eve", b"a"), ("anonymous", b"a")] {
            assert_eq!(users.login(name, password, HERE, now), Ok(None));
        }
        let anonymous = Users::parse("", true).unwrap();
        assert_eq!(
            anonymous.login("FTP", b"me@", HERE, now),
            Ok(user("anonymous", false))
        );
        assert_eq!(anonymous.login("ann", b"", HERE, now), Ok(None));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let hash = hash(b"x").unwrap();
        for (text, says) in [
            ("ann".to_owned(), "line 1: a line is"),
            (format!("\nann:{hash}:rx"), "line 2: a line is"),
            ("ann:secret".to_owned(), "line 1: not a hash"),
            (
                format!("ann:{}", hash.replace("m=19456", "m=4000000")),
                "line 1: this hash needs",
            ),
            (format!("ftp:{hash}"), "line 1: this name"),
            (
                format!("a:{hash}\na:{hash}"),
                "line 2: the user is listed twice",
            ),
        ] {
            let error = Users::parse(&text, true).err().unwrap();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
