//! Third-party copies, between servers of ours and of others.

mod root;
