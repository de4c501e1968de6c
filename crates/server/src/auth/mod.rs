//! Who asks: what clients prove of themselves.

#[allow(dead_code)]
pub(crate) mod keys;
