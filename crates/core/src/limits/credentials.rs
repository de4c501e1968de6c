//! Credentials that we read and make, and certificates of peers.

use std::time::Duration;

// --- Credentials that we read ------------------------------------------------------------------

/// Attribute certificates of VOMS in one proxy: one for each virtual organisation, and people are in a few.
pub const VOMS_CERTIFICATES_MAX: usize = 16;
/// Certificates that one of them brings for its own signature: a server's and the authorities above it.
pub const VOMS_ISSUERS_MAX: usize = 8;
/// Extensions, attributes and targets of one of them, each: real ones have five extensions and one attribute.
pub const VOMS_ELEMENTS_MAX: usize = 64;
/// Groups and roles of one client, in all of them together: each is in every line of the logs.
pub const VOMS_FQANS_MAX: usize = 256;
/// Bytes of a group with its role as VOMS writes it: its database has room for 255 of each, and there are words between.
pub const VOMS_FQAN_BYTES_MAX: usize = 640;
/// By how much the clocks of a VOMS server and of ours may differ: what VOMS itself allows.
pub const VOMS_SKEW_MAX_S: i64 = 300;
/// Largest file with a credential: a token has a few KiB, a chain of proxies with the attributes of several VOs a few tens.
pub const CREDENTIAL_BYTES_MAX: usize = 1024 * 1024;
/// Clocks that differ by more make credentials look too old or too young: issuers and servers allow for about a minute.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);
/// Rate that a copy is assumed to have when it is asked if a credential outlives it: half of a 1 Gb/s link, which is
/// what a worker node has to itself on a bad day.
pub const ASSUMED_RATE_BYTES_PER_S: u64 = 50_000_000;
/// Time that a credential should last beyond that, in seconds: clocks differ, and the last answer may take its time.
pub const CREDENTIAL_SPARE_S: i64 = 60;

// --- Credentials that we make ------------------------------------------------------------------

/// Certificates and proxies that we make are good from this long before they are made: clocks of machines differ by
/// minutes, and Globus and VOMS allow for five.
pub const CERTIFICATE_BACKDATED_S: i64 = 300;

// --- Delegation, and what is kept of it --------------------------------------------------------

/// Bytes of a request for a proxy: one with an RSA key of 8192 bits has 3 KiB, and some programs add attributes.
pub const PROXY_REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an upload: a chain in base64, with room for what some programs write between its blocks.
pub const PROXY_UPLOAD_BYTES_MAX: usize = 2 * CHAIN_BYTES_MAX;
/// RSA bits of the keys that are made for users: ring signs with 2048 to 4096.
pub const DELEGATED_RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;
/// Bytes of a secret that records are sealed with: as many as the key of the cipher has.
pub const VAULT_SECRET_BYTES_MIN: usize = 32;
/// Bytes of the name of a record: identifiers of users and jobs have 16 to 36.
pub const VAULT_NAME_BYTES_MAX: usize = 64;
/// Bytes of a record: a key, a chain with the attributes of several VOs, and what is noted beside them.
pub const VAULT_RECORD_BYTES_MAX: usize = CREDENTIAL_BYTES_MAX;
/// A job's token is refreshed when a third of its time is left, at most this long before its end, in seconds: an issuer
/// may be away for that long before a job has to wait.
pub const JOB_TOKEN_AHEAD_MAX_S: i64 = 3600;
/// First pause after an issuer gave no answer about a job's token, in seconds; the next ones double.
pub const JOB_TOKEN_PAUSE_S: i64 = 10;
/// Longest of these pauses, in seconds: many jobs ask one issuer, and an outage of hours ends without a person.
pub const JOB_TOKEN_PAUSE_MAX_S: i64 = 600;

// --- Certificates ------------------------------------------------------------------------------

/// Certificates that a peer presents, and of a path to a root. Chains of the grid have up to ten, with proxies of
/// proxies.
pub const CHAIN_CERTIFICATES_MAX: usize = 24;
/// Bytes of all of them: rustls takes messages of 64 KiB in a handshake; attributes of several organisations take 20 KiB.
pub const CHAIN_BYTES_MAX: usize = 128 * 1024;
/// Signatures looked at for one chain, along all ways that are tried: a few more than the longest way has.
pub const CHAIN_SIGNATURES_MAX: usize = 48;
/// Bytes of a serial number (RFC 5280, 4.1.2.2).
pub const CERTIFICATE_SERIAL_BYTES_MAX: usize = 20;
/// Extensions of a certificate: each is compared with all before it, and any client can make a certificate. Real ones have
/// ten.
pub const CERTIFICATE_EXTENSIONS_MAX: usize = 64;

/// Seconds for which a proxy is valid that a server gets in a login by gsi to make a copy with; no longer than the certificate in any
/// case. The longest third-party copy that XRootD's clients wait for is half an hour, and a queue may be before it.
pub const DELEGATED_PROXY_S: i64 = 12 * 3600;
