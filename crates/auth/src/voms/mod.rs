//! What VOMS says of the holder of a certificate: attribute certificates (RFC 5755), and whom to believe.

/// Whom to believe about virtual organisations: for each, the chains of certificates that may sign for it.
#[derive(Debug, Default)]
pub struct VomsDir {}
