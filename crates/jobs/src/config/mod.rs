//! Settings of the service, as FTS3's clients read and change them (fts3-rest 3.5, 9).
//!
//! Each kind has a type. Its `serde` form is what a store keeps and what a client is answered; what a client sends is read by `asked`
//! functions, with FTS3's refusals. Look-ups by link or storage are made once for all settings of a kind, and asked for often.

mod access;
mod ban;
mod fields;
mod global;
mod link;
mod share;
mod storage;

pub use access::{Drain, Grant, Revocation, TokenProvider};
pub use ban::{Ban, BanEffect, UserBan};
pub use global::{Global, Globals};
pub use link::{LinkRule, Links};
pub use share::{ActivityShare, Share, Weight, weight_of_vo};
pub use storage::{StorageLimits, StorageRule, Storages, TpcSupport};

#[cfg(test)]
mod tests;
