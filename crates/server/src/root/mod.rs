//! Requests of XRootD's protocol: `root://` and `roots://`.
//!
//! Connections, logins and sessions are the front's ([`gridlane_front::root`]), and so are reads of files that are open.
//! Here is what requests do with storage. Each becomes an [`Outcome`](gridlane_front::root::answer::Outcome): an answer, or a
//! failure with the code that a client of XRootD expects.
//!
//! Read first: [`requests`], [`places`], then [`files`].

pub(crate) mod chmod;
pub(crate) mod close;
pub(crate) mod dirlist;
pub(crate) mod fattr;
pub(crate) mod files;
pub(crate) mod intake;
pub(crate) mod locate;
pub(crate) mod locks;
pub(crate) mod meetings;
pub(crate) mod mkdir;
pub(crate) mod mv;
mod names;
pub(crate) mod open;
mod pages_in;
pub(crate) mod places;
pub(crate) mod prepare;
pub(crate) mod pull;
pub(crate) mod query;
pub(crate) mod requests;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod statx;
#[cfg(test)]
mod testing;
pub(crate) mod third_party;
pub(crate) mod truncate;
mod written;
