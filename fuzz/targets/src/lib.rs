//! Readers that are tried with bytes which no peer would send.
//!
//! A [`Target`] is a function over bytes that panics when something is wrong: when the code under test
//! panics, when an answer depends on how the bytes were cut, when what was written is not what is read, when
//! a limit is not held, when a path leads out. libFuzzer calls them (`fuzz/fuzz_targets`), and so does the
//! smoke run of `make test`, with seeds changed by [`mutate`]. How to run, replay and extend them is in
//! `docs/guides/fuzzing.md`.
//!
//! Everything that is not in the input follows from it: where it is cut, for one. So an input that fails
//! once always fails.

pub mod mutate;
pub mod random;
pub mod recorded;
pub mod seeds;
pub mod smuggling;
pub mod streams;

mod bodies;
mod certificates;
mod copies;
mod credentials;
mod delegation;
mod fields;
mod heads;
mod jobs;
mod logins;
mod names;
mod reading;
mod root;
mod sss;
mod tls;
mod tokens;
mod voms;
mod xml;

use std::collections::BTreeMap;
use std::path::Path;

use recorded::{Conversation, conversations};
use seeds::Seeds;

/// Something to try.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of the function, of the seeds, of libFuzzer's binary and of the test.
    pub name: &'static str,
    /// Tries one input; panics when something is wrong.
    pub run: fn(&[u8]),
    /// Its seeds and words, as text: see [`seeds`].
    pub seeds: &'static str,
    /// The number of inputs that the smoke run makes: all targets together take less than 40 s, without optimisation,
    /// on two cores that others use as well.
    pub iterations: u64,
}

impl Target {
    /// Its seeds: those that are written down, and what real peers were recorded to say.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn all_seeds(&self) -> Seeds {
        let mut seeds = Seeds::parse(self.seeds);
        let is_client = match self.name {
            "root_requests" | "root_server" => true,
            "root_answers" => false,
            _ => return seeds,
        };
        for Conversation { said, .. } in
            conversations(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds/root"))
        {
            let mut connections = BTreeMap::<u32, Vec<u8>>::new();
            for said in said.into_iter().filter(|said| said.is_client == is_client) {
                connections.entry(said.connection).or_default().extend(said.bytes);
            }
            seeds.inputs.extend(connections.into_values());
        }
        seeds
    }
}

macro_rules! targets {
    ($($module:ident::$name:ident, $iterations:literal;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $module::$name,
            seeds: include_str!(concat!("../../seeds/", stringify!($name), ".txt")),
            iterations: $iterations,
        }),*];
    };
}

targets! {
    heads::request_head, 5000;
    heads::response_head, 5000;
    heads::chunked, 5000;
    fields::ranges, 5000;
    fields::digests, 5000;
    fields::link_header, 5000;
    fields::if_header, 5000;
    fields::webdav_headers, 5000;
    copies::copy_request, 5000;
    copies::copy_markers, 5000;
    xml::metalink, 5000;
    xml::propfind, 5000;
    xml::proppatch, 5000;
    xml::multistatus, 5000;
    bodies::multipart, 5000;
    bodies::listing, 2000;
    names::url, 5000;
    names::resource_path, 5000;
    smuggling::smuggling, 20000;
    root::root_requests, 5000;
    root::root_answers, 5000;
    root::root_pages, 2000;
    root::root_dirlist, 5000;
    root::root_client, 2000;
    root::root_server, 3000;
    credentials::macaroon, 2000;
    credentials::macaroon_request, 5000;
    voms::voms, 5000;
    sss::sss, 3000;
    tokens::token, 3000;
    tokens::issuer_documents, 5000;
    logins::gsi, 1000;
    certificates::certificates, 3000;
    certificates::trust_directory, 1000;
    delegation::delegation, 5000;
    jobs::submission, 5000;
    tls::tls_records, 1000;
    reading::format_hints, 20000;
    reading::sparse_index, 5000;
}

/// The target of this name.
///
/// # Panics
/// When there is none.
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("there is no target {name:?}"))
}
