//! The cluster's own certificate authority.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use super::clock::unix_seconds;
use super::error::IdentityError;
use super::node::{ClusterId, NodeId, PeerIdentity, random_bytes};

/// How long an authority's own certificate is valid: ten years.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long a node's certificate is valid unless said otherwise: two years.
pub const NODE_LIFETIME: Duration = Duration::from_secs(2 * 365 * 24 * 3600);

/// Certificates are valid from an hour before they are made: clocks of a cluster's machines differ.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Signs the certificates of a cluster's nodes. Its key never leaves the master.
#[derive(Debug)]
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority for a new cluster.
    ///
    /// # Errors
    /// If the operating system has no randomness.
    pub fn create(now: SystemTime) -> Result<Self, IdentityError> {
        let cluster = ClusterId::random();
        let key = KeyPair::generate().map_err(IdentityError::cryptography("making a key"))?;
        let mut params = params(now, AUTHORITY_LIFETIME);
        params
            .distinguished_name
            .push(DnType::CommonName, common_name(&cluster));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params
            .self_signed(&key)
            .map_err(IdentityError::cryptography("signing a certificate"))?
            .der()
            .clone();
        Self::from_parts(certificate, key)
    }

    /// An authority from its certificate and key.
    ///
    /// # Errors
    /// If they are not those of a cluster's authority.
    pub fn from_parts(
        certificate: CertificateDer<'static>,
        key: KeyPair,
    ) -> Result<Self, IdentityError> {
        let cluster = cluster_of(&certificate)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(
            IdentityError::cryptography("reading the authority's certificate"),
        )?;
        Ok(Self {
            cluster,
            certificate,
            issuer,
        })
    }

    /// The cluster whose nodes it signs for.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Its certificate, which every node has.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes the certificate of a node that asks with a signing request. Of the request only the
    /// key counts, which the request's signature proves to be the asker's; everything else is what
    /// the authority says.
    ///
    /// # Errors
    /// If the request is malformed or its signature wrong.
    pub fn issue(
        &self,
        request: &[u8],
        node: NodeId,
        name: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let request = CertificateSigningRequestDer::from(request);
        let request = CertificateSigningRequestParams::from_der(&request)
            .map_err(IdentityError::cryptography("reading a signing request"))?;
        let mut params = params(now, lifetime);
        params.distinguished_name.push(DnType::CommonName, name);
        let uri = PeerIdentity::uri(&self.cluster, node);
        let uri = uri
            .try_into()
            .map_err(IdentityError::cryptography("naming a node"))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every node calls and is called.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let signed = CertificateSigningRequestParams {
            params,
            public_key: request.public_key,
        };
        let certificate = signed
            .signed_by(&self.issuer)
            .map_err(IdentityError::cryptography("signing a certificate"))?;
        Ok(certificate.der().clone())
    }
}

fn params(now: SystemTime, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(unix_seconds(now));
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now.saturating_add(lifetime);
    params.distinguished_name = DistinguishedName::new();
    let mut serial = random_bytes::<16>();
    // A serial number is positive, and its first byte not zero, so that it reads back as written.
    serial[0] = serial[0] & 0x3f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params
}

const COMMON_NAME: &str = "Skewer cluster ";

fn common_name(cluster: &ClusterId) -> String {
    format!("{COMMON_NAME}{cluster}")
}

/// The cluster that an authority's certificate is for.
pub(crate) fn cluster_of(authority: &CertificateDer<'_>) -> Result<ClusterId, IdentityError> {
    let (_, parsed) =
        x509_parser::parse_x509_certificate(authority).map_err(IdentityError::malformed)?;
    let name = parsed.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    let name = name.and_then(|name| name.strip_prefix(COMMON_NAME));
    name.ok_or_else(|| IdentityError::malformed("it is no cluster's authority"))
        .and_then(ClusterId::parse)
}
