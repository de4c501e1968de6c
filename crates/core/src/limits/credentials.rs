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
/// Largest file with the addresses of VOMS servers: all of EGI's 200 VOs take 60 KB.
pub const VOMSES_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Files of a directory with such addresses: one for each VO, or for each server of one.
pub const VOMSES_FILES_MAX: usize = 1024;
/// VOMS servers that a machine knows, of all VOs together.
pub const VOMSES_SERVERS_MAX: usize = 4096;
/// VOMS servers of one VO that are asked one after the other: VOs have two or three, and a request waits a minute at most.
pub const VOMS_SERVERS_ASKED_MAX: usize = 8;
/// Largest answer of a VOMS server: an attribute certificate with its signer's chain, in base64, takes 4 to 40 KB.
pub const VOMS_ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Elements of such an answer: the attribute certificate, and a few warnings and errors of four elements each.
pub const VOMS_ANSWER_ELEMENTS_MAX: u64 = 256;
/// Characters of a VOMS server's words that are told.
pub const VOMS_WORDS_MAX: usize = 500;
/// Seconds by which attributes may be shorter than was asked before that is told: clocks differ, and requests take time.
pub const VOMS_SHORTER_S: i64 = 300;
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

// --- Shared keys of XRootD (sss) ---------------------------------------------------------------

/// Seconds for which credentials by a shared key are good, and by which clocks may differ: XRootD's own default.
pub const SSS_LIFETIME_S: i64 = 13;
/// Bytes of a shared key (XRootD).
pub const SSS_KEY_BYTES_MAX: usize = 128;
/// Bytes of a shared key that is read: with less any client could try all of them.
pub const SSS_KEY_BYTES_MIN: usize = 8;
/// Bytes of its name, with a NUL (XRootD).
pub const SSS_KEY_NAME_BYTES_MAX: usize = 192;
/// Bytes of the name of a user (XRootD).
pub const SSS_USER_BYTES_MAX: usize = 128;
/// Keys of one file: a site has a few.
pub const SSS_KEYS_MAX: usize = 1000;
/// Bytes of credentials by a shared key, all told (XRootD).
pub const SSS_CREDENTIALS_BYTES_MAX: usize = 16 * 1024;
/// Credentials that were seen within their lifetime, each of 48 bytes: two thousand logins per second.
pub const SSS_SEEN_MAX: usize = 65_536;

// --- Logins at issuers -------------------------------------------------------------------------

/// Bytes of an issuer's answer about tokens: an access, a refresh and an identity token, and words.
pub const LOGIN_ANSWER_BYTES_MAX: usize = 128 * 1024;
/// Bytes of a refresh token, and of a code that stands for one: as many as an access token has.
pub const REFRESH_TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Characters of an issuer's own words that are repeated in a message.
pub const ISSUER_WORDS_CHARS_MAX: usize = 300;
/// Characters of the code that a person types at an issuer's page: real ones have 6 to 9.
pub const USER_CODE_CHARS_MAX: usize = 64;
/// Seconds between two questions if a person has allowed a login, unless the issuer says otherwise (RFC 8628, 3.2).
pub const DEVICE_INTERVAL_S: u64 = 5;
/// Seconds by which they grow when the issuer says that they are too few (RFC 8628, 3.5).
pub const DEVICE_SLOWER_S: u64 = 5;
/// The most seconds between two of them, whatever the issuer says: a person waits.
pub const DEVICE_INTERVAL_MAX_S: u64 = 60;
/// The longest that a person is waited for, whatever the issuer says: a working day.
pub const DEVICE_WAIT_MAX_S: u64 = 8 * 3600;
/// The longest lifetime of a token that is believed: ten years. Larger numbers are mistakes, and would overflow.
pub const TOKEN_LIFETIME_MAX_S: u64 = 10 * 366 * 86_400;
/// A token of a login is renewed when less than this is left of it, in seconds, or a third of its lifetime if that is less.
pub const LOGIN_RENEWED_BEFORE_S: i64 = 60;
/// Seconds until a renewal that failed is tried again while the token is still good.
pub const LOGIN_RETRY_S: i64 = 5;
/// Bytes of a file with a login: a refresh and an access token, the client's secret, and where they are from.
pub const LOGIN_FILE_BYTES_MAX: usize = 128 * 1024;
/// Logins of one user that are listed.
pub const LOGINS_MAX: usize = 1000;
/// Characters of the name of a login, which is a file's.
pub const LOGIN_NAME_CHARS_MAX: usize = 100;
/// The longest wait for the beginning of an issuer's answer about tokens: some ask other services first.
pub const LOGIN_ANSWER_MAX: Duration = Duration::from_secs(20);
/// The longest wait for another process that renews the same login, whose own waits are bounded as well.
pub const LOGIN_LOCK_MAX: Duration = Duration::from_secs(60);
/// Bytes of an answer of oidc-agent.
pub const AGENT_ANSWER_BYTES_MAX: usize = 64 * 1024;
