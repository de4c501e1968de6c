//! Certificate chains with proxies (RFC 5280, RFC 3820), the trust of the grid, and revocation.

/// Whom to believe about certificates: authorities, what each may sign, and what was revoked.
#[derive(Debug, Default)]
pub struct Trust {}
