//! Who may connect: names and SCRAM verifiers in the database's directory.
//!
//! One line for each user, `name:SCRAM-SHA-256$iterations:salt$stored:server`, as PostgreSQL
//! keeps them. A password cannot be computed from it.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{ScramSecret, gen_salted_password};

use crate::error::ServerError;

/// The file in the database's directory.
const FILE: &str = "users";
/// What RFC 7677 asks for at least, and PostgreSQL uses.
const ITERATIONS: usize = 4096;
const SALT: usize = 16;
const METHOD: &str = "SCRAM-SHA-256";

/// The users of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    verifiers: BTreeMap<String, Verifier>,
}

/// What the server must know to check a password.
#[derive(Clone, PartialEq, Eq)]
struct Verifier {
    iterations: usize,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier")
    }
}

impl Users {
    /// Reads the users of the database in `data`; none if it has never had one.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn read(data: &Path) -> Result<Self, ServerError> {
        let path = data.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ServerError::File { path, source }),
        };
        let mut verifiers = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let entry = line
                .split_once(':')
                .and_then(|(name, rest)| Some((name.to_owned(), Verifier::parse(rest)?)));
            let (name, verifier) = entry.ok_or_else(|| ServerError::Users {
                path: path.clone(),
                line: number + 1,
                reason: "this is not a name and a SCRAM-SHA-256 verifier",
            })?;
            verifiers.insert(name, verifier);
        }
        Ok(Self { verifiers })
    }

    /// Adds a user, or gives it another password. Durable when it returns; running servers know
    /// it from the next connection on.
    ///
    /// # Errors
    /// If the name or password cannot be one, or the file cannot be written.
    pub fn add(data: &Path, name: &str, password: &str) -> Result<(), ServerError> {
        if name.is_empty() || name.contains([':', '\n', '\r', '\0']) {
            return Err(ServerError::InvalidUser(
                "a user's name is not empty and has no colon or line break",
            ));
        }
        if password.is_empty() {
            return Err(ServerError::InvalidUser("the password is empty"));
        }
        let mut users = Self::read(data)?;
        users
            .verifiers
            .insert(name.to_owned(), Verifier::of_password(password));
        users.write(data)
    }

    /// Removes a user; `false` if there was none of that name.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn remove(data: &Path, name: &str) -> Result<bool, ServerError> {
        let mut users = Self::read(data)?;
        let was_there = users.verifiers.remove(name).is_some();
        if was_there {
            users.write(data)?;
        }
        Ok(was_there)
    }

    /// Whether nobody has to say who they are.
    pub fn is_empty(&self) -> bool {
        self.verifiers.is_empty()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.verifiers.keys().map(String::as_str)
    }

    /// Whether `password` is the one of user `name`. Takes as long for names that are not there.
    pub fn accepts(&self, name: &str, password: &str) -> bool {
        let known = self.verifiers.get(name).cloned();
        let verifier = known.clone().unwrap_or_else(|| Verifier::nobody(name));
        let salted = gen_salted_password(password, &verifier.salt, verifier.iterations);
        let salt = verifier.salt.clone();
        let given = ScramSecret::verifier_from_salted_password(salt, salted, verifier.iterations);
        let ScramSecret::Verifier { stored_key, .. } = given else {
            return false;
        };
        let pairs = stored_key.iter().zip(&verifier.stored_key);
        let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
        known.is_some() && stored_key.len() == verifier.stored_key.len() && differ == 0
    }

    /// What to check a password against. For names that are not there it is one that no password
    /// fits, so that strangers do not learn which names exist.
    pub(crate) fn secret(&self, name: &str) -> ScramSecret {
        let verifier = match self.verifiers.get(name) {
            Some(verifier) => verifier.clone(),
            None => Verifier::nobody(name),
        };
        ScramSecret::Verifier {
            salt: verifier.salt,
            iterations: verifier.iterations,
            stored_key: verifier.stored_key,
            server_key: verifier.server_key,
        }
    }

    /// Replaces the file in one step.
    fn write(&self, data: &Path) -> Result<(), ServerError> {
        let path = data.join(FILE);
        let text: String = self
            .verifiers
            .iter()
            .map(|(name, verifier)| format!("{name}:{}\n", verifier.line()))
            .collect();
        write_private(&path, text.as_bytes()).map_err(|source| ServerError::File { path, source })
    }
}

impl Verifier {
    fn of_password(password: &str) -> Self {
        let salt: [u8; SALT] = rand::random();
        let salted = gen_salted_password(password, &salt, ITERATIONS);
        match ScramSecret::verifier_from_salted_password(salt.to_vec(), salted, ITERATIONS) {
            ScramSecret::Verifier {
                salt,
                iterations,
                stored_key,
                server_key,
            } => Self {
                iterations,
                salt,
                stored_key,
                server_key,
            },
            ScramSecret::SaltedPassword { .. } => Self::nobody(""),
        }
    }

    /// Keys that belong to no password; the salt stays the same, as a user's would.
    fn nobody(name: &str) -> Self {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let halves = [SECRET.hash_one((name, 0)), SECRET.hash_one((name, 1))];
        Self {
            iterations: ITERATIONS,
            salt: halves.iter().flat_map(|half| half.to_be_bytes()).collect(),
            stored_key: rand::random::<[u8; 32]>().to_vec(),
            server_key: rand::random::<[u8; 32]>().to_vec(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{METHOD}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(&self.stored_key),
            STANDARD.encode(&self.server_key)
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split('$');
        if parts.next()? != METHOD {
            return None;
        }
        let (iterations, salt) = parts.next()?.split_once(':')?;
        let (stored_key, server_key) = parts.next()?.split_once(':')?;
        let decode = |text: &str| STANDARD.decode(text).ok();
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt: decode(salt)?,
            stored_key: decode(stored_key)?,
            server_key: decode(server_key)?,
        })
    }
}

/// Writes a file that only its owner can read; it appears under its name when it is complete.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut unfinished = PathBuf::from(path).into_os_string();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    let _ = std::fs::remove_file(&unfinished);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn users_are_kept_without_their_passwords_for_nobody_else_to_read() {
        let dir = tempfile::tempdir().unwrap();
        Users::add(dir.path(), "ada", "correct horse").unwrap();
        Users::add(dir.path(), "bob", "battery").unwrap();
        let users = Users::read(dir.path()).unwrap();
        assert_eq!(users.names().collect::<Vec<_>>(), ["ada", "bob"]);
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("horse") && text.starts_with("ada:SCRAM-SHA-256$4096:"),
            "{text}"
        );
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Users::remove(dir.path(), "ada").unwrap());
        assert!(!Users::remove(dir.path(), "ada").unwrap());
        assert_eq!(
            Users::read(dir.path()).unwrap().names().collect::<Vec<_>>(),
            ["bob"]
        );
    }

    #[test]
    fn a_damaged_file_is_named_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        Users::add(dir.path(), "ada", "x").unwrap();
        let path = dir.path().join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("bob:secret\n");
        std::fs::write(&path, text).unwrap();
        let error = Users::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("users, line 2"), "{error}");
    }
}
