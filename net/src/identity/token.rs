//! One-time, expiring invitations, and the store that redeems them.
//!
//! A token carries the master's address, the fingerprint of the cluster's authority and a secret.
//! From the secret both sides derive one Ed25519 key pair: whoever joins proves in the TLS
//! handshake to have the key, so the secret never travels, and without a token not even the
//! handshake succeeds. The store keeps a hash of the public key: reading it lets nobody join.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SanType};
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::clock::unix_seconds;
use super::error::IdentityError;
use super::node::{NodeId, hex, random_bytes};
use super::private_file::write_private;

/// The URI in the certificate of somebody who has yet to join.
pub(crate) const JOINER: &str = "skewer:join";

/// How long a token is good for unless said otherwise: a day.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// So that people recognise one.
const PREFIX: &str = "skewer-join-";
const VERSION: u8 = 2;
const CHECKSUM: usize = 4;
/// Version, expiry, fingerprint, secret, number.
const FIXED: usize = 1 + 8 + 32 + 32 + 4;
/// A DNS name has at most 253 bytes.
const LONGEST_ADDRESS: usize = 300;

/// An invitation for one worker. Its text, from `to_string`, is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Where the master answers, as `host:port`.
    pub address: String,
    /// SHA-256 of the authority's certificate.
    pub authority: [u8; 32],
    /// Seconds since 1970.
    pub expires_at: u64,
    /// The worker whose certificate it renews; `None` if it is for a new worker.
    pub renews: Option<NodeId>,
    secret: [u8; 32],
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken for {}", self.address)
    }
}

impl JoinToken {
    /// A new one. It is good for nothing before its hash is in the master's [`TokenStore`].
    pub fn new(
        address: &str,
        authority: &CertificateDer<'_>,
        now: SystemTime,
        lifetime: Duration,
    ) -> Self {
        Self {
            address: address.to_owned(),
            authority: fingerprint(authority),
            expires_at: unix_seconds(now).saturating_add(lifetime.as_secs()),
            renews: None,
            secret: random_bytes(),
        }
    }

    /// The same for a worker that has joined before.
    #[must_use]
    pub fn renewing(self, worker: NodeId) -> Self {
        Self {
            renews: Some(worker),
            ..self
        }
    }

    /// Whether the cluster of this authority has made it.
    pub fn is_of(&self, authority: &CertificateDer<'_>) -> bool {
        self.authority == fingerprint(authority)
    }

    /// What the master keeps of it.
    ///
    /// # Errors
    /// If no key can be made of the secret.
    pub fn hash(&self) -> Result<TokenHash, IdentityError> {
        Ok(TokenHash::of_public_key(self.key()?.public_key_raw()))
    }

    fn key(&self) -> Result<KeyPair, IdentityError> {
        /// What stands before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410).
        const PKCS8: [u8; 16] = [
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        let seed = digest(&SHA256, &[b"skewer join v1", &self.secret[..]].concat());
        let der = [&PKCS8[..], seed.as_ref()].concat();
        let der = PrivatePkcs8KeyDer::from(der);
        KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)
            .map_err(IdentityError::cryptography("making a token's key"))
    }

    /// The certificate, signed by itself, with which a worker asks to join.
    pub(crate) fn certificate(
        &self,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), IdentityError> {
        let key = self.key()?;
        let mut params = CertificateParams::default();
        let uri = JOINER
            .try_into()
            .map_err(IdentityError::cryptography("naming a joiner"))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        let certificate = params
            .self_signed(&key)
            .map_err(IdentityError::cryptography("signing a certificate"))?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((certificate.der().clone(), key.into()))
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.expires_at.to_le_bytes());
        bytes.extend(self.authority);
        bytes.extend(self.secret);
        bytes.extend(self.renews.map_or(0, |worker| worker.0).to_le_bytes());
        bytes.extend(self.address.as_bytes());
        bytes.extend(&digest(&SHA256, &bytes).as_ref()[..CHECKSUM]);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for JoinToken {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let damaged = || IdentityError::TokenDamaged;
        let text = text.trim().strip_prefix(PREFIX).ok_or_else(damaged)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
        let end = bytes.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
        let (bytes, checksum) = bytes.split_at(end);
        if &digest(&SHA256, bytes).as_ref()[..CHECKSUM] != checksum
            || !(FIXED..FIXED + LONGEST_ADDRESS).contains(&bytes.len())
            || bytes[0] != VERSION
        {
            return Err(damaged());
        }
        let (fixed, address) = bytes.split_at(FIXED);
        let part = |at: usize| -> [u8; 32] { std::array::from_fn(|i| fixed[at + i]) };
        Ok(Self {
            address: String::from_utf8(address.to_vec()).map_err(|_| damaged())?,
            authority: part(9),
            expires_at: u64::from_le_bytes(std::array::from_fn(|i| fixed[1 + i])),
            renews: worker(u32::from_le_bytes(std::array::from_fn(|i| fixed[73 + i]))),
            secret: part(41),
        })
    }
}

/// The worker with this number; 0 is the master's.
fn worker(number: u32) -> Option<NodeId> {
    Some(NodeId(number)).filter(|node| !node.is_master())
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let hash = digest(&SHA256, certificate);
    std::array::from_fn(|i| hash.as_ref()[i])
}

/// What the master keeps of a token: SHA-256 of its public key, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenHash(String);

impl TokenHash {
    pub(crate) fn of_public_key(public_key: &[u8]) -> Self {
        Self(hex(digest(&SHA256, public_key).as_ref()))
    }
}

/// The tokens that are out: a directory with one file per token, so that `skewer cluster token`
/// can add one while the master runs, and that two joiners with one token meet in a `rename` that
/// only one of them wins.
#[derive(Debug, Clone)]
pub struct TokenStore {
    directory: PathBuf,
}

impl TokenStore {
    /// The store in a directory, which appears with the first token.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Makes a token good.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn add(&self, token: &JoinToken) -> Result<(), IdentityError> {
        std::fs::create_dir_all(&self.directory)
            .map_err(|error| IdentityError::file(&self.directory, error))?;
        let path = self.open(&token.hash()?);
        let mut text = token.expires_at.to_string();
        if let Some(worker) = token.renews {
            text.push_str(&format!(" {}", worker.0));
        }
        write_private(&path, text.as_bytes())
    }

    /// Whether a token is good now. Gives the worker whose certificate it renews, `None` for a new
    /// one.
    ///
    /// # Errors
    /// [`IdentityError::TokenUnknown`], [`IdentityError::TokenUsed`] or
    /// [`IdentityError::TokenExpired`] if not.
    pub fn check(
        &self,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Result<Option<NodeId>, IdentityError> {
        let path = self.open(hash);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(_) if self.used(hash).exists() => return Err(IdentityError::TokenUsed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(IdentityError::TokenUnknown);
            }
            Err(error) => return Err(IdentityError::file(&path, error)),
        };
        let damaged = |error| IdentityError::file(&path, error);
        let (expires_at, renews) = match text.trim().split_once(' ') {
            Some((expires_at, number)) => (expires_at, number.parse().map_err(damaged)?),
            None => (text.trim(), 0),
        };
        let expires_at: u64 = expires_at.parse().map_err(damaged)?;
        if expires_at <= unix_seconds(now) {
            return Err(IdentityError::TokenExpired);
        }
        Ok(worker(renews))
    }

    /// Uses a token up; gives what [`TokenStore::check`] does. Of several at the same time exactly
    /// one succeeds.
    ///
    /// # Errors
    /// As [`TokenStore::check`].
    pub fn redeem(
        &self,
        hash: &TokenHash,
        now: SystemTime,
    ) -> Result<Option<NodeId>, IdentityError> {
        let renews = self.check(hash, now)?;
        std::fs::rename(self.open(hash), self.used(hash)).map_err(|_| IdentityError::TokenUsed)?;
        Ok(renews)
    }

    fn open(&self, hash: &TokenHash) -> PathBuf {
        self.directory.join(&hash.0)
    }

    fn used(&self, hash: &TokenHash) -> PathBuf {
        self.directory.join(format!("{}.used", hash.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(lifetime: u64) -> JoinToken {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let authority = CertificateDer::from(vec![1, 2, 3]);
        JoinToken::new(
            "db.example:7433",
            &authority,
            now,
            Duration::from_secs(lifetime),
        )
    }

    fn time_at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_survives_being_copied() {
        let token = token(60);
        let read: JoinToken = format!(" {token}\n").parse().unwrap();
        assert_eq!(read, token);
        assert_eq!(read.hash().unwrap(), token.hash().unwrap());
        assert_eq!(read.renews, None);
        let token = token.renewing(NodeId(70_000));
        assert_eq!(token.to_string().parse(), Ok(token));
    }

    proptest! {
        #[test]
        fn a_token_that_is_cut_or_changed_is_damaged(at in 0usize..200, to in "[A-Za-z0-9_-]") {
            let text = token(60).to_string();
            let at = at % text.len();
            prop_assert_eq!(text[..at].parse::<JoinToken>(), Err(IdentityError::TokenDamaged));
            let mut changed = text.clone();
            changed.replace_range(at..=at, &to);
            if changed != text {
                prop_assert_eq!(changed.parse::<JoinToken>(), Err(IdentityError::TokenDamaged));
            }
        }
    }

    #[test]
    fn a_token_is_good_once_and_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::new(directory.path());
        let (first, second) = (token(60), token(60));
        let third = token(60).renewing(NodeId(7));
        let hash = first.hash().unwrap();
        assert_eq!(
            store.check(&hash, time_at(1_000)),
            Err(IdentityError::TokenUnknown)
        );
        store.add(&first).unwrap();
        store.add(&second).unwrap();
        store.add(&third).unwrap();
        assert_eq!(store.redeem(&hash, time_at(1_059)), Ok(None));
        assert_eq!(
            store.redeem(&hash, time_at(1_059)),
            Err(IdentityError::TokenUsed)
        );
        let hash = second.hash().unwrap();
        assert_eq!(
            store.redeem(&hash, time_at(1_060)),
            Err(IdentityError::TokenExpired)
        );
        let hash = third.hash().unwrap();
        assert_eq!(store.check(&hash, time_at(1_059)), Ok(Some(NodeId(7))));
        assert_eq!(store.redeem(&hash, time_at(1_059)), Ok(Some(NodeId(7))));
    }

    #[test]
    fn the_store_does_not_hold_the_secret() {
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::new(directory.path());
        let token = token(60);
        store.add(&token).unwrap();
        let secret = hex(&token.secret);
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            assert!(!name.contains(&secret) && !text.contains(&secret));
        }
    }
}
