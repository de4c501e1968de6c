//! Copying one file.

pub(crate) mod rules;
