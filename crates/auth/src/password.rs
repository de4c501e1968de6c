//! Users with passwords.

/// Users and the hashes of their passwords.
#[derive(Clone, Debug, Default)]
pub struct Users {}
