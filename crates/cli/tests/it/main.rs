//! End-to-end tests of the real binary: as a client against servers that misbehave, as a client of many
//! replicas, killed and started again, and together with other people's clients and servers in both directions;
//! and of the networks that it emulates.
//!
//! One test program with a module per subject, so that it is linked once.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

mod support;

mod answers;
mod at_the_prompt;
mod auth_ops;
mod c_abi;
mod commands;
mod credentials;
mod curl_to_serve;
mod directories;
mod disagreement;
mod first_hour;
mod gsi;
mod hardships;
mod hosts;
mod identity;
mod identity_peers;
mod logins;
mod macaroons;
mod many_replicas;
mod metalink;
mod names_from_outside;
mod nginx_to_client;
mod operate;
mod own_trees;
mod peers;
mod pki;
mod probe;
mod ratios;
mod reading;
mod renewal;
mod restarts;
mod resume;
mod resume_journal;
mod root;
mod root_client;
mod root_copy;
mod root_identity;
mod root_sss;
mod rules;
mod serve;
mod server_killed;
mod shortage;
mod small_files;
mod statuses;
mod stubborn;
mod targets;
mod third_party;
mod tls_records;
mod tokens;
mod tpc_root;
mod trees;
mod trust;
mod upload;
mod verification;
mod voms;
mod votes;
mod wan;
mod wan_crash;
mod wan_limits;
mod wan_paths;
mod wan_rights;
mod what_is_shown;
