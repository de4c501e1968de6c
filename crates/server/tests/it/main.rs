//! The server, started in this process and spoken to over real connections. One program, which is linked once.
//!
//! Those that look at the whole process (its threads, its memory, 10 000 connections) are programs of their own beside
//! this directory.

mod auth;
mod changing;
mod dav;
mod elsewhere;
mod garbage;
mod get;
mod hung;
mod lifecycle;
mod limits;
mod multirange;
mod objects;
mod operations;
mod policy;
mod put;
mod root_garbage;
mod root_identity;
mod root_namespace;
mod root_reading;
mod root_sessions;
mod root_third_party;
mod root_writing_pages;
mod shares;
mod streams;
mod support;
mod user_limits;
