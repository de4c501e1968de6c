//! Every limit, in one place: a number with its unit in its name, and the reason for it.

mod credentials;
mod disk_cache;
mod dispatch;
mod jobs;
mod jobstore;
mod reading;
mod third_party;

use std::time::Duration;

pub use credentials::*;
pub use disk_cache::*;
pub use dispatch::*;
pub use jobs::*;
pub use jobstore::*;
pub use reading::*;
pub use third_party::*;

// --- Credentials that a server believes --------------------------------------------------------

/// Bytes of a file of authorities, revoked certificates, users or secrets. The longest revocation lists of the grid have
/// 2 MB.
pub const AUTH_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Between two looks of a server at whether its certificate, authorities, lists and secrets are still the same. What has
/// changed is read when it stays the same for one more look: a list that revokes counts within two of them. A look is a
/// `stat` of each file: a few milliseconds for all authorities of the grid.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(3);
/// Bytes of a JSON Web Token. Real ones have 0.5 to 3 kB, those with many groups 8 kB; it has to leave room in a request
/// head for everything else.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Objects and arrays within each other in the JSON of tokens and of issuers' documents. Profiles need 2, certificates of
/// keys 4.
pub const TOKEN_JSON_DEPTH_MAX: usize = 8;
/// Bytes of a token's subject (WLCG profile 2.1.1: 255), of its identifier, and of the name of its key.
pub const TOKEN_NAME_BYTES_MAX: usize = 255;
/// Scopes of a token: each may become a place to compare with for every request.
pub const TOKEN_SCOPES_MAX: usize = 256;
/// Groups of a token.
pub const TOKEN_GROUPS_MAX: usize = 256;
/// Audiences of a token.
pub const TOKEN_AUDIENCES_MAX: usize = 64;
/// Difference between an issuer's clock and ours that is borne: what the WLCG profile recommends (4.3.1).
pub const TOKEN_CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The most that a server can be told to bear: of tokens of ten minutes, half.
pub const TOKEN_CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);
/// Tokens that are known to be good (about 1 KiB each), so that only the first request of each costs a signature.
pub const TOKENS_KEPT_MAX: usize = 8192;
/// Bytes of an issuer's document: its description, or its keys. Real ones have up to 20 kB.
pub const ISSUER_DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Keys of one issuer. Real ones have one to five.
pub const ISSUER_KEYS_MAX: usize = 64;
/// Until an issuer's keys are fetched again: what the WLCG profile has as its maximum (4.3.1). It is how long a key that
/// was revoked is still believed.
pub const ISSUER_KEYS_REFRESH: Duration = Duration::from_secs(6 * 3600);
/// Time for which they are believed when the issuer does not answer: a long weekend (WLCG profile 4.3.1).
pub const ISSUER_KEYS_AGE_MAX: Duration = Duration::from_secs(4 * 24 * 3600);
/// Between two fetches because of a key that is not known: any client can name one.
pub const ISSUER_KEYS_UNKNOWN_WAIT: Duration = Duration::from_secs(180);
/// Between two fetches when the first failed.
pub const ISSUER_KEYS_FAILED_WAIT: Duration = Duration::from_secs(60);
/// Time that a document of an issuer may take. The request whose token needs it waits, for two or three of them.
pub const ISSUER_DOCUMENT_MAX: Duration = Duration::from_secs(5);

// --- What a server accepts ---------------------------------------------------------------------

/// Bytes of a request line: beyond it the answer is 414. nginx and Apache stop at 8 KiB.
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a request head: beyond it the answer is 431. Tokens travel in headers; 32 KiB holds them.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Header lines of a request: beyond it the answer is 431.
pub const REQUEST_HEADERS_MAX: usize = 100;
/// Bytes of one path component: the file systems' own limit.
pub const NAME_BYTES_MAX: usize = 255;
/// From accepting a connection to knowing its protocol, then to the end of a TLS handshake.
pub const DETECT_MAX: Duration = Duration::from_secs(10);
/// Bytes of TLS sessions that clients may go on with. One takes 0.4 KB, and 6 KB with the chain of an RSA proxy that has
/// VOMS attributes; each connection leaves two. At 4000 connections per second with such proxies, what was left in the last
/// second is there, and without client certificates what was left in the last twenty.
pub const TLS_SESSIONS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Time for which a TLS session may be gone on with: a working day. The chain in it is judged anew each time.
pub const TLS_SESSION_AGE_MAX: Duration = Duration::from_secs(12 * 3600);
/// From a request's first byte to the end of its head: beyond it the answer is 408.
pub const REQUEST_HEAD_MAX: Duration = Duration::from_secs(20);
/// Without a byte of a request on an open connection: then it is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(75);
/// Without one byte of progress while a body is sent or received: then 408, or the connection is cut.
pub const BODY_STALL_MAX: Duration = Duration::from_secs(60);
/// Rate that a client has to send or take on average while it is waited for; else 408, or the connection is cut.
/// One byte a minute is progress, and would hold a connection for ever. No real link is that slow.
pub const BODY_RATE_BYTES_PER_S_MIN: u64 = 1000;
/// Time for which a body was waited for before that average counts.
pub const BODY_RATE_GRACE: Duration = Duration::from_secs(60);
/// Bytes of a rejected upload that are read and thrown away so that the client sees the answer. Many clients look at it
/// only when all was sent: what is not read makes the kernel reset the connection, and the answer is lost with it. To throw
/// away this much takes a second of a processor at most.
pub const BODY_DRAIN_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Time for which the next of such bytes is waited for.
pub const BODY_DRAIN_MAX: Duration = Duration::from_secs(5);
/// Time for which such bytes are read altogether: shorter than a graceful stop waits.
pub const BODY_DRAIN_WHOLE_MAX: Duration = Duration::from_secs(20);
/// Bytes of one upload unless the operator says otherwise: 413 beyond it. 16 TiB is ext4's own limit.
pub const UPLOAD_BYTES_MAX: u64 = 16 << 40;
/// Bytes of a line that gives the size of a chunk, extensions included.
pub const CHUNK_LINE_BYTES_MAX: usize = 1024;
/// Bytes of the trailer behind a chunked body.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Open connections: beyond it the answer is 503 with `Retry-After`.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections that are being told that there are too many; more are dropped without a word.
pub const TURNED_AWAY_MAX: usize = 256;
/// Interval at which a server looks for the end of a crowd, to give back its memory.
pub const SHRINK_INTERVAL: Duration = Duration::from_secs(1);
/// Connections that make a crowd, of which half have to leave: their tasks take a few megabytes.
pub const SHRINK_CONNECTIONS_MIN: u64 = 256;
/// `Retry-After` of a 503.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Time for which a graceful stop waits for running requests.
pub const DRAIN_MAX: Duration = Duration::from_secs(30);
/// Time for which a server that has never been reached is tried again, where no other has the file: one that is being
/// started again needs a part of a second, and a few on a busy machine. A user who mistyped a port waits for it.
pub const FIRST_CONTACT_MAX: Duration = Duration::from_secs(10);
/// Until a connection that could not be made is tried again; each next time twice as long, up to
/// [`RECONNECT_PAUSE_MAX`].
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// See [`RECONNECT_PAUSE`].
pub const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Uploads that are begun anew because the connection broke, for one file: each may have sent nearly all of it.
pub const UPLOADS_AGAIN_MAX: u32 = 5;
/// Time for which a client may pause between two ranges, reads or writes of one file, before a server that stops
/// takes its transfer for over: some round trips of the longest path, and what a limited client sleeps.
pub const DRAIN_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two looks, while a server stops, at whether a client has what was sent to it: then its pause begins.
pub const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// Checksums computed on demand at the same time: each reads a whole file. One client has
/// [`DIGESTS_PER_CLIENT_MAX`] of them.
pub const DIGESTS_RUNNING_MAX: usize = 4;
/// Remembered checksums (about 150 bytes each).
pub const DIGESTS_KEPT_MAX: usize = 65_536;
/// Time for which a request waits for such a checksum: gfal2's shipped configuration gives up then as well.
pub const DIGEST_ANSWER_MAX: Duration = Duration::from_secs(1800);
/// Bytes of a file whose checksum is computed for a GET, which waits for its first byte meanwhile.
pub const DIGEST_GET_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Time for which a GET waits for it; then it is answered without.
pub const DIGEST_GET_MAX: Duration = Duration::from_secs(5);
/// A file whose bytes were changed less than this long ago may be changed again at any moment: what is sent of it is copied
/// out of the kernel's cache first, where nothing changes it any more. Programs that write in place do so again within
/// seconds; what is published is read for days.
pub const FILE_AT_REST_MIN: Duration = Duration::from_secs(60);
/// Number of times that a GET looks at a file that is being written, before it is told to come back: each time it
/// waits for one system call of the writer, and for at most a tick of the kernel's clock.
pub const FILE_SETTLE_TRIES: usize = 5;
/// At the end of a large answer that the kernel sends from its cache, this part of it is copied first: what the kernel still
/// holds for the client when the last look is taken was copied then, and cannot change. A 32nd costs 3 % of the processor time.
pub const COPIED_TAIL_FRACTION: u64 = 32;
/// The most of it, in bytes: what Linux keeps for one connection unless it is told otherwise (4 MiB to be sent, 6 MiB received).
pub const COPIED_TAIL_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Checksums that a storage keeps beside its files: 128 bytes each, so at most 128 MiB in each export.
pub const SIDE_CHECKSUMS_MAX: usize = 1 << 20;
/// After this time without a new one they are removed: a rare question can wait for one.
pub const SIDE_CHECKSUMS_AGE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes of the name of a user's attribute: what Linux (255) leaves of it behind XRootD's `user.U.`.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 248;
/// Bytes of its value: Linux' own limit, and what XRootD says.
pub const ATTRIBUTE_VALUE_BYTES_MAX: usize = 65_536;
/// Number of times that the opening of a file is tried again that others make and remove meanwhile.
pub const OPEN_RACES_MAX: usize = 64;
/// Entries of one directory listing; a longer one says that it was cut.
pub const LISTING_ENTRIES_MAX: usize = 100_000;
/// Entries of a directory that are read at a time, in one turn at its device: their looks take about a millisecond, and a slow
/// reader of a listing holds 100 kB of them.
pub const DIRECTORY_PAGE_ENTRIES: usize = 256;
/// The same of names alone, which need no look at each.
pub const DIRECTORY_PAGE_NAMES: usize = 2048;
/// Bytes of the largest listing that is made as a whole, a page of [`LISTING_ENTRIES_MAX`] lines: room for so many is kept
/// while one is made, and for as many as it has until it is sent.
pub const LISTING_PAGE_BYTES: usize = 20 * 1024 * 1024;
/// Bytes of listings in memory at the same time: sixteen of the largest.
pub const LISTINGS_BYTES_MAX: usize = 16 * LISTING_PAGE_BYTES;
/// Time for which a request waits for room for one of them: then the answer is 503.
pub const LISTING_WAIT_MAX: Duration = Duration::from_secs(10);
/// Without one byte of progress while a listing is sent: it is in memory as long, and was asked for to be read.
pub const LISTING_STALL_MAX: Duration = Duration::from_secs(10);
/// Rate at which it has to be taken on average: the largest in less than seven minutes, over half a megabit per second.
pub const LISTING_RATE_BYTES_PER_S_MIN: u64 = 50_000;
/// Directories inside each other that one COPY copies: each holds a descriptor.
pub const COPY_DEPTH_MAX: usize = 128;
/// Failures that the answer to one COPY or MOVE names; with more it is given up.
pub const COPY_FAILURES_MAX: usize = 1000;
/// Bytes made at a time of an answer that is streamed: what a slow reader holds in memory.
pub const STREAM_PIECE_BYTES: usize = 64 * 1024;
/// Bytes of the body of a PROPFIND or PROPPATCH: beyond it the answer is 413. Real ones have a few hundred.
pub const DAV_REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Elements of such a body.
pub const DAV_REQUEST_ELEMENTS_MAX: usize = 2048;
/// Properties that one request may name: each costs its length in every entry of the answer.
pub const DAV_REQUEST_PROPERTIES_MAX: usize = 256;
/// Bytes of their names and namespaces together: a namespace that is declared once is written for each. Real requests
/// have about a thousand.
pub const DAV_REQUEST_NAMES_BYTES_MAX: usize = 16 * 1024;
/// Elements inside each other, in a request.
pub const DAV_REQUEST_DEPTH_MAX: usize = 32;
/// Lists in an `If` field: each may cost a look at the disk.
pub const IF_LISTS_MAX: usize = 32;
/// Ranges of one request: a `Range` header with more is ignored and the whole file sent (RFC 9110, 14.2).
/// davix fills about 3900 bytes of a header with ranges of four bytes and more, so it never asks for as many.
pub const RANGES_MAX: usize = 1024;
/// Number of times that a range may begin before the one in front of it: beyond it the header is ignored. Readers of
/// columns ask in ascending order; others want to move disk heads. Apache's default.
pub const RANGE_REVERSALS_MAX: usize = 20;
/// Time for which a browser may remember the rights of a page's scripts here: two hours, the most that Chrome does.
pub const CORS_ANSWER_AGE: Duration = Duration::from_secs(7200);
/// Access records that wait for their writer; more are counted and lost.
pub const ACCESS_RECORDS_MAX: usize = 4096;
/// Time for which a stop waits for the access log: its reader may never come back.
pub const ACCESS_LOG_STOP_MAX: Duration = Duration::from_secs(5);
/// Bytes of what a client says of a request (`X-Request-Id`, `ClientInfo`) that are recorded: job ids of FTS,
/// the longest known, take 150.
pub const LOGGED_FIELD_BYTES_MAX: usize = 256;
/// Clients whose requests and bytes are counted, for limits of each: about 200 bytes of memory for one.
pub const THROTTLED_CLIENTS_MAX: usize = 65_536;
/// Time for which a client with a limit of requests waits at most for the next one after a request that counts as many.
pub const REQUESTS_OWED_MAX: Duration = Duration::from_secs(60);
/// Requests on the admin address at the same time: one or two programs scrape it.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;
/// Connections to it that wait to be one of those; more are closed.
pub const ADMIN_WAITING_MAX: usize = 64;
/// After a connection there could not be accepted.
pub const ADMIN_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for which the metrics wait for an export to tell its room, and `/readyz` for it to be where it was.
pub const ADMIN_SPACE_MAX: Duration = Duration::from_secs(1);
/// Time that a request on the admin address may take, from connecting to the end of the answer.
pub const ADMIN_REQUEST_MAX: Duration = Duration::from_secs(10);
/// Bytes of a macaroon as text: it travels in a request's head. Real ones have 300 to 600.
pub const MACAROON_BYTES_MAX: usize = 8 * 1024;
/// Caveats of a macaroon: each is a signature to compute. Real ones have five to ten.
pub const MACAROON_CAVEATS_MAX: usize = 64;
/// Bytes of a secret that macaroons are made with: XRootD's own limit, and the length of the signatures.
pub const MACAROON_SECRET_BYTES_MIN: usize = 32;
/// Bytes of a request for a macaroon: XRootD's own limit.
pub const MACAROON_REQUEST_BYTES_MAX: usize = 4096;
/// Bytes of a server's answer to that: gfal2 reads a megabyte, and a macaroon with its URLs has a few kilobytes.
pub const MACAROON_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Time for which a macaroon is good at most; a request for more gets this. XRootD's default.
pub const MACAROON_MAX: Duration = Duration::from_secs(24 * 3600);
/// Time for which a macaroon is good when the request named none: what issuers of tokens do.
pub const MACAROON_DEFAULT: Duration = Duration::from_secs(3600);
/// Cost of a password's hash, as a power of two: at 14 one takes a second of a processor.
pub const PASSWORD_COST_MAX: u32 = 14;
/// Cost of those that we make: about 50 ms.
pub const PASSWORD_COST: u32 = 10;
/// Bytes of a password: the hash sees no more.
pub const PASSWORD_BYTES_MAX: usize = 72;
/// Users with passwords. With more of them a site has something better than a file.
pub const USERS_MAX: usize = 10_000;
/// Passwords that were seen to be right and need not be hashed again: 32 bytes each.
pub const PASSWORDS_SEEN_MAX: usize = 4096;
/// Rounds of the proof that a login asks for: the longest that is known, of certificates, takes three.
pub const ROOT_LOGIN_ROUNDS_MAX: u32 = 8;
/// Tokens that a login over root:// may show in vain before it has to wait: one of each place that clients look at.
pub const ROOT_PROOFS_FREE_MAX: u32 = 3;
/// Time for which it then waits for each answer. A login has [`REQUEST_HEAD_MAX`] altogether.
pub const ROOT_PROOF_PAUSE: Duration = Duration::from_secs(2);
/// Passwords that are hashed at the same time: one for each processor of a small machine, lest guessing stop the service.
pub const PASSWORDS_CHECKED_MAX: usize = 2;
/// Logins by certificate over root:// that are worked on at a time: each takes milliseconds of a processor.
pub const LOGINS_BY_CERTIFICATE_MAX: usize = 4;
/// Keys for proxies that clients lend that are made at a time: each takes a tenth of a second of a processor.
pub const LENT_KEYS_MADE_MAX: usize = 1;
/// Clients have their passwords hashed one after the other in so many lanes: those of one client in one, so that a
/// guesser is waited for by one client in 256.
pub const PASSWORD_LANES: usize = 256;
/// Time for which a request waits for its turn to have its password hashed.
pub const PASSWORD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Chains of clients' certificates that are known to be good (about 1 KiB each), so that only the first connection of each
/// costs signatures.
pub const CHAINS_KEPT_MAX: usize = 8192;
/// Time for which a connection goes by what was found of its certificates, and a refused one is refused without a new
/// look.
pub const CHAIN_JUDGED_MAX_S: i64 = 60;
/// Operations that may wait for one device at the same time, each on a thread.
pub const DISK_OPERATIONS_MAX: usize = 64;
/// Threads that one device may hold: operations that hang, and checksums on demand.
pub const DEVICE_THREADS_MAX: usize = DISK_OPERATIONS_MAX + DIGESTS_RUNNING_MAX;
/// The same of a process that only copies, for each thread that serves its connections: a disk is not faster with more, and a
/// thousand copies hold no more threads than a few.
pub const CLIENT_DISK_OPERATIONS_PER_THREAD: usize = 2;
/// Such operations at least, where a single thread serves connections, or two do.
pub const CLIENT_DISK_OPERATIONS_MIN: usize = 4;
/// Such operations at most, however many threads there are.
pub const CLIENT_DISK_OPERATIONS_MAX: usize = 16;
/// Checksums of files that such a process computes at the same time on one device, where few threads serve connections; up to
/// [`DIGESTS_RUNNING_MAX`] with more.
pub const CLIENT_DIGESTS_MIN: usize = 2;
/// Devices of which each may hold so many threads: that of a source, that of a target, one more.
pub const CLIENT_DEVICES_MAX: usize = 3;
/// Lanes of a process that may have a thread of their own at the same time. They spare a copy from one near source a switch;
/// where there are many copies, others use that processor.
pub const LANE_THREADS_MAX: usize = 4;
/// Threads of such a process beside those: names of hosts that are looked up, and what takes over from a thread that begins to
/// wait.
pub const CLIENT_BLOCKING_THREADS_SPARE: usize = 2;
/// Devices of which each may hold as many threads as that. Where a server has more of them, they share these.
pub const DEVICES_MAX: usize = 16;
/// Threads of a server beside those that serve connections and those that devices may hold: passwords, the counting of
/// quotas, and what takes over from a thread that begins to wait, for a moment, when the machine is busy.
pub const BLOCKING_THREADS_SPARE: usize = 60;
/// Threads for work that blocks of a server with one device.
pub const BLOCKING_THREADS_MAX: usize = DEVICE_THREADS_MAX + BLOCKING_THREADS_SPARE;
/// Threads that a server keeps at hand for work that blocks, from its start on: when no others can be had, checksums,
/// passwords and waits for disks go on with these, and nothing waits for ever.
pub const BLOCKING_THREADS_KEPT: usize = 8;
/// Threads for work that blocks without which a server does not start.
pub const BLOCKING_THREADS_MIN: usize = 16;
/// Time that the threads of a server may take to begin. On a machine that has a lot else to do it is seconds.
pub const THREADS_BEGIN_MAX: Duration = Duration::from_secs(30);
/// Age of an abandoned partial upload before it is removed.
pub const PARTIAL_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Interval at which a running server looks for such uploads.
pub const PARTIAL_INTERVAL: Duration = Duration::from_secs(3600);
/// Wait for the removal of such uploads in all exports: a storage that does not answer keeps no server from starting.
pub const REMOVAL_WAIT_MAX: Duration = Duration::from_secs(5);

// --- What one client may have of it ------------------------------------------------------------

/// One client has at most the fourth part of what all share: of connections, open files, memory. A machine with an IPv4
/// and an IPv6 address is two clients, and leaves half.
pub const CLIENT_PART: usize = 4;
/// Connections that one client may have where there are so few that a quarter of them were less: a copy of one file has as
/// many lanes. Never more than three quarters of all.
pub const CLIENT_CONNECTIONS_MIN: usize = 16;
/// The part of all connections that is left to the other protocol: HTTP alone has no more than seven eighths of them, and
/// root:// neither.
pub const PROTOCOL_PART: usize = 8;
/// Blocking disk operations of one client at the same time: more of them make no disk faster.
pub const DISK_OPERATIONS_PER_CLIENT_MAX: usize = DISK_OPERATIONS_MAX / CLIENT_PART;
/// Checksums computed on demand for one client at the same time: each reads as fast as one disk does.
pub const DIGESTS_PER_CLIENT_MAX: usize = DIGESTS_RUNNING_MAX / CLIENT_PART;
/// Copies and moves of trees, within the server, at the same time: each holds up to [`COPY_DEPTH_MAX`] descriptors and a
/// turn at the disk nearly all the time.
pub const COPIES_MAX: usize = 16;
/// Time for which a request waits for its turn to be one of them: then the answer is 503.
pub const COPY_WAIT_MAX: Duration = Duration::from_secs(10);
/// The largest number of streams that the request of a third-party copy may wish for: as many as XRootD's server takes.
pub const COPY_STREAMS_MAX: u32 = 100;
/// Bytes of the fields that a third-party copy is to send to its remotes, names included, summed over all of them: a head
/// has room for a token of each source, and one token for 64 sources is not to become megabytes.
pub const COPY_FIELDS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a line of a third-party copy's answer, its end not counted. Davix reads with a buffer of this size, so nothing
/// longer is written, and of what is longer nothing more is kept.
pub const MARKER_LINE_BYTES_MAX: usize = 1024;
/// Bytes of the last line of that answer, its end included: with room in davix's buffer for what stands around it.
pub const FINAL_LINE_BYTES_MAX: usize = 900;
/// Stripes of one copy that are told apart in markers: as many as davix takes.
pub const MARKER_STRIPES_MAX: usize = 8192;
/// Descriptors that a process needs beside those of connections and their files, where there are enough: a runtime's,
/// listeners, logs, exports, keys.
pub const DESCRIPTORS_KEPT: u64 = 64;
/// The same where there are few.
pub const DESCRIPTORS_KEPT_MIN: u64 = 24;
/// Descriptors for each connection: one is its socket, two are for files over root://, of which some sessions have many and
/// most have none, and one for what HTTP has open meanwhile: a file, or a directory and the partial file of an upload.
pub const DESCRIPTORS_PER_CONNECTION: u64 = 4;
/// Connections that a server has to be able to have, or it does not start.
pub const CONNECTIONS_MIN: usize = 4;

// --- What guesses passwords --------------------------------------------------------------------

/// Wrong passwords of one user from one address, before that address waits for this user's next one.
pub const GUESSES_FREE_MAX: u32 = 5;
/// Wrong passwords of all users from one address, before it waits for the next one of any user: behind one address there
/// may be many people, and a guesser tries many names.
pub const GUESSES_OF_ADDRESS_FREE_MAX: u32 = 50;
/// Wrong passwords of one user from all addresses: beyond it each address has one guess instead of
/// [`GUESSES_FREE_MAX`]. It is never none: others' guesses keep no user out.
pub const GUESSES_OF_USER_FREE_MAX: u32 = 50;
/// Time for which an address waits after the first guess too many; each further one doubles it.
pub const GUESS_WAIT_MIN: Duration = Duration::from_secs(2);
/// Time for which it waits at most: four guesses an hour lead nowhere.
pub const GUESS_WAIT_MAX: Duration = Duration::from_secs(900);
/// After this time without a wrong one all are forgotten.
pub const GUESSES_AGE_MAX: Duration = Duration::from_secs(4 * 3600);
/// Addresses and users that are kept in mind because of wrong passwords: about 50 bytes each.
pub const GUESSES_KEPT_MAX: usize = 65_536;

// --- What a client accepts ---------------------------------------------------------------------

/// Bytes of a list of endpoints: it is held in memory. A virtual organisation has some hundred.
pub const PROBE_LIST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Endpoints of one probe: the report of each takes some kilobytes until the end.
pub const PROBE_ENDPOINTS_MAX: usize = 10_000;
/// Endpoints that are probed at the same time.
pub const PROBE_PARALLEL_MAX: usize = 64;
/// Entries of a directory after which a probe stops to list it: that it can be listed is known by then.
pub const PROBE_LISTED_MAX: usize = 10_000;
/// Bytes of the page that a probe takes of a directory, of a server that has no other listing: it is read whole.
pub const PROBE_PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of the name of a site, or of a zone: it stands in a table.
pub const PROBE_SITE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a file that was found in a listing and is read to see if that can be done; the rest of a longer one is left.
pub const PROBE_FOUND_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of the small files whose latency is measured: less than a packet has.
pub const PROBE_SMALL_BYTES: u64 = 1024;
/// Small files that are written and read: their median is told.
pub const PROBE_SMALL_FILES: usize = 3;
/// Bits of an IPv4 address by which networks of endpoints are told apart.
pub const PROBE_NETWORK_IPV4_BITS: u8 = 16;
/// The same of an IPv6 address: registries give a provider so many.
pub const PROBE_NETWORK_IPV6_BITS: u8 = 32;
/// Time for which a copy that was stopped may tidy up after itself, before it is left.
pub const PROBE_GRACE: Duration = Duration::from_secs(5);
/// Bytes of a response head.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header lines of a response.
pub const RESPONSE_HEADERS_MAX: usize = 128;
/// Servers of which a client remembers what they did (some 100 bytes each), so that it need not find out again; when there
/// are more, all are forgotten.
pub const SERVERS_REMEMBERED_MAX: usize = 1024;
/// Redirects followed for one request.
pub const REDIRECTS_MAX: usize = 10;
/// Unwanted bytes of a body, such as an error's page, which are read so that the connection can be
/// used again: more costs more than a new connection.
pub const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a listing that is read whole.
pub const LISTING_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Elements inside each other, in a WebDAV listing. Five are what it is made of; dead properties bring more.
pub const MULTISTATUS_DEPTH_MAX: usize = 64;
/// Bytes of one tag, comment or piece of text in a WebDAV listing: it is held until its end is there.
pub const MULTISTATUS_TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Bytes of everything that is kept of one entry of a WebDAV listing: a path of 4096 bytes, each of them
/// encoded as three, fits several times.
pub const MULTISTATUS_ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Checksums of an entry of a listing that are kept: each known algorithm in every spelling, and some more.
pub const MULTISTATUS_CHECKSUMS_MAX: usize = 16;
/// Bytes of a `Range` header that asks for many ranges: davix's own figure, and half of what the strictest
/// servers take as a header line.
pub const RANGE_HEADER_BYTES_MAX: usize = 3900;
/// The same for a server of our own, which takes as many ranges as it answers in one request: 22 bytes each, behind 10 GB.
pub const RANGE_HEADER_BYTES_OWN: usize = 24 * 1024;
/// Bytes in front of a part's data in a multipart body: delimiter, fields, and text before the first part.
pub const MULTIPART_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Parts of one multipart body: a server that cuts what was asked for sends more of them than were asked for.
pub const MULTIPART_PARTS_MAX: usize = 4 * RANGES_MAX;
/// Bytes between two ranges that a server may send along because it made one part of both. It may do so when
/// they are fewer than a part's head takes (RFC 9110, 15.3.7.2), and heads grow with a server's fields.
pub const MULTIPART_GAP_BYTES_MAX: u64 = 1024;
/// Bytes of a boundary: RFC 2046, 5.1.1, says 70; some frameworks put more dashes in front.
pub const MULTIPART_BOUNDARY_BYTES_MAX: usize = 200;
/// Bytes of a metalink that is read whole: a data set of 10 000 files with three replicas each takes a third.
pub const METALINK_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Time that a metalink may take to come to its end: at its largest, 1 Mbit/s.
pub const METALINK_ANSWER_MAX: Duration = Duration::from_secs(300);
/// Files of one metalink.
pub const METALINK_FILES_MAX: usize = 10_000;
/// URLs of all files of one metalink.
pub const METALINK_URLS_MAX: usize = 100_000;
/// Checksums of pieces in one metalink: 1 TiB in pieces of 4 MiB.
pub const METALINK_PIECES_MAX: usize = 262_144;
/// Checksums of pieces that the third-party copies have which run or wait: a hundred bytes each. One client has those of the largest metalink.
pub const THIRD_PARTY_PIECES_MAX: usize = METALINK_PIECES_MAX * CLIENT_PART;
/// Bytes of one URL in a metalink or a `Link` header: no server takes a longer request line.
pub const METALINK_URL_BYTES_MAX: usize = 8 * 1024;
/// Elements inside each other, in a metalink: it has five levels, and extensions some more.
pub const METALINK_DEPTH_MAX: usize = 32;
/// Bytes of one tag, comment or piece of text in a metalink, such as a description or a signature.
pub const METALINK_TOKEN_BYTES_MAX: usize = 1024 * 1024;
/// Links in the `Link` headers of one response.
pub const LINKS_MAX: usize = 256;
/// For one TCP connection and its TLS handshake.
pub const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Head start of an address before the next one of the same name is tried beside it (RFC 8305, 5).
pub const CONNECT_STAGGER: Duration = Duration::from_millis(250);
/// Fresh bytes that a source must bring before its failures are forgiven. One that cuts every connection after fewer is
/// not working: asked again at once, it would be dialled thousands of times a second.
pub const SOURCE_PROGRESS_BYTES_MIN: u64 = 64 * 1024;
/// Pause before the only source is dialled again whose connections bring something, but less than that.
pub const SOURCE_CUT_PAUSE: Duration = Duration::from_millis(200);
/// From the last byte of an upload to the answer, unless the user said how long: the server may sync and read again all of
/// a large file first.
pub const UPLOAD_ANSWER_MAX: Duration = Duration::from_secs(300);
/// Rate that a path is thought to have at least when a small upload is sent at once with its request: a user's short
/// limit on silence is stretched by the time that the body takes at this rate.
pub const SMALL_UPLOAD_BYTES_PER_S_MIN: u64 = 100_000;
/// Bytes of a file that is uploaded in one piece: the round trip that `Expect` costs is dearer than sending
/// this much in vain, and it is held in memory.
pub const SMALL_UPLOAD_BYTES_MAX: u64 = 1024 * 1024;
/// Descriptors that a client has open whatever it does: standard input and output, what waits for events and signals, a list
/// of what a tree has, a name service.
pub const CLIENT_DESCRIPTORS_KEPT: usize = 14;
/// Descriptors of a copy beside its lanes: its partial file, its journal, those through which the file is read back, a
/// question to a source, the directory that is synced.
pub const DESCRIPTORS_PER_COPY: usize = 6;
/// Rate at which a file that was just written is thought to be read back, when it is decided if that is worth it.
pub const READ_BACK_BYTES_PER_S: u64 = 1_000_000_000;
/// A copy that took so many times as long as reading its bytes back is followed by that: it costs 2 %.
pub const READ_BACK_SHARE: u32 = 50;
/// After a copy that took so long its bytes are read back whatever that costs: other programs had the time to change them.
pub const LONG_COPY_MIN: Duration = Duration::from_secs(600);
/// Adjoining bytes of one sender that have one checksum: so much is fetched again where one of them is lost, and the list of
/// a file of 1 TB has 16 384 entries.
pub const LEDGER_PIECE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Number of times that bytes which the file has lost are fetched again.
pub const READ_BACKS_MAX: u32 = 2;
/// Bytes of a file that is known to be larger: its checksum is asked for beside the data. A server may have
/// to read all of it first.
pub const SMALL_DOWNLOAD_BYTES_MAX: u64 = 1024 * 1024;
/// Small files that wait for their turn or are under way: some hundred bytes each, and over a long path hundreds must be
/// asked for ahead.
pub const SMALL_FILES_WAITING_MAX: usize = 2048;
/// Servers of which small files are fetched side by side; further ones are asked for each file by itself. Fewer where their
/// connections could take more than a quarter of all descriptors.
pub const SMALL_ORIGINS_MAX: usize = 16;
/// Bytes of a file of unknown size that is taken for a small one when its answer says its size: it is there nearly as fast as
/// over several connections, and to ask once more costs a connection.
pub const SMALL_UNKNOWN_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Connections to one server for small files, on a long path: together they are through slow start sooner. A sixteenth of all
/// descriptors where that is less.
pub const SMALL_FETCHERS_MAX: usize = 16;
/// Requests for small files that are under way on one connection.
pub const SMALL_AHEAD_MAX: usize = 256;
/// Bytes of files that are asked for ahead on one connection to a near server: it always has something to do. Over a long path
/// it is between a quarter of this and all of it, and more when the rate asks for it.
pub const SMALL_AHEAD_BYTES_MIN: u64 = 1024 * 1024;
/// Bytes of requests that are under way on one connection. The kernels' buffers of both ends hold them, so that a client
/// that sends requests and does not read meanwhile never waits for a server that sends answers and does not read meanwhile.
pub const SMALL_REQUESTS_BYTES_MAX: usize = 32 * 1024;
/// Small files that are open: they are being written, or complete and not visible. A quarter of all descriptors where that is
/// less.
pub const SMALL_FILES_OPEN_MAX: usize = 512;
/// Complete small files that become visible together: their descriptors are open.
pub const SMALL_GROUP_FILES_MAX: usize = 16;
/// Bytes of complete small files that become visible together.
pub const SMALL_GROUP_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Groups of one connection that wait for a device.
pub const SMALL_GROUPS_MAX: usize = 2;
/// Nothing from a server that owes answers about small files, beyond four round trips: then they are copied one by one.
pub const SMALL_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Answers of no use, in a row: then a server's small files are copied one by one.
pub const SMALL_ODD_MAX: u32 = 32;
/// Time that a server that answers a request for a file with a page may take to say if it is that of a directory.
/// No byte of the page is taken until then; a server that speaks WebDAV knows it at once.
pub const DIRECTORY_ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time that a server may take to begin to send when it was asked for a checksum too, beyond four round trips.
/// Then it is asked for the bytes alone.
pub const DIGEST_HEAD_MAX: Duration = Duration::from_millis(800);
/// For the addresses of a name: resolvers ask twice and wait 5 s for each.
pub const RESOLVE_MAX: Duration = Duration::from_secs(10);
/// Names looked up at the same time: each holds a thread until the name service has answered.
pub const RESOLVING_MAX: usize = 16;
/// The same of names in one domain, whose name service may be dead: the others go on.
pub const RESOLVING_OF_DOMAIN_MAX: usize = RESOLVING_OF_ASKER_MAX / 4;
/// The same of one user or client, all of whose domains may be dead: some are left for others.
pub const RESOLVING_OF_ASKER_MAX: usize = RESOLVING_MAX / 4 * 3;
/// Answers that came on the main stream of a session and wait for the lane of one substream. A lane has 16 requests under way, and
/// a server answers each once at most: the rest is dropped.
pub const SUBSTREAM_ANSWERS_WAITING_MAX: usize = 64;
/// Addresses of one name that are tried: at a head start each, more do not fit into [`CONNECT_MAX`].
pub const ADDRESSES_MAX: usize = 32;
/// Time for which it is remembered which family of addresses connected (RFC 8305, 4: not beyond changes of the
/// network, about ten minutes).
pub const FAMILY_MEMORY_MAX: Duration = Duration::from_secs(600);
/// For the TLS handshake with one address while there are others: then the next one is tried.
pub const TLS_ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Connections to one host that carry files at the same time, over all copies of a client: many small files
/// share them. Beyond it a copy waits for its turn.
pub const LANES_PER_HOST_MAX: usize = 64;
/// Copies of one process that move bytes from or to one endpoint at the same time: sixteen keep the path and the processors
/// busy, and 800 at once come at three quarters of their rate.
pub const COPIES_NEAR_MAX: usize = 16;
/// The same for an endpoint that is far: there they wait for round trips.
pub const COPIES_FAR_MAX: usize = LANES_PER_HOST_MAX;
/// From this round trip on.
pub const FAR_ROUND_TRIP: Duration = Duration::from_millis(2);
/// A copy to which no byte came for so long does not count among those that move.
pub const SILENT_PLACE_MAX: Duration = Duration::from_secs(1);
/// Short questions (a listing, a checksum) to one host at the same time.
pub const REQUESTS_PER_HOST_MAX: usize = 32;
/// Time for which such a turn is waited for. Then the connection is made all the same: better one too many than
/// copies that wait for each other.
pub const CONNECTION_TURN_MAX: Duration = Duration::from_secs(10);
/// Idle connections kept for one host: as many files as are copied at once, and their questions.
pub const IDLE_PER_HOST_MAX: usize = 32;
/// Idle connections kept in all: each is a descriptor here and a slot at a server.
pub const IDLE_CONNECTIONS_MAX: usize = 128;
/// Time for which an idle connection is kept. Servers close theirs after 30 to 75 s, those that are quicker
/// (Apache: 5 s) say so.
pub const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(20);
/// Sources of one copy.
pub const SOURCES_MAX: usize = 64;
/// Replicas that servers may add to a copy by naming them: as many as are used at a time.
pub const SERVED_REPLICAS_MAX: usize = 8;
/// Bytes still to come for which a copy begins again with a metalink that a server names: below it, reading
/// the metalink takes longer than fetching everything a second time would.
pub const SERVED_METALINK_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// Wrong pieces that one source may send before it is not asked any more: a disk that went bad in one place
/// makes one or two, a replica of another file nothing else.
pub const WRONG_PIECES_MAX: u32 = 3;
/// Two are enough when they are one of so many pieces that came from it, or more, and another source has sent none: that
/// is no bad place on a disk.
pub const WRONG_PIECES_OFTEN: u64 = 4;
/// A server reads a file at least so fast for its checksum: a busy disk that others read from too.
pub const DIGEST_BYTES_PER_S_MIN: u64 = 20_000_000;
/// A server that was waited for in vain is not waited for again so long: a tree has many files, and one bad moment passes.
pub const UNRESPONSIVE_MAX: Duration = Duration::from_secs(60);
/// Time for which a source may compute a digest while the copy waits for nothing else, however large the file is.
pub const DIGEST_WAIT_MAX: Duration = Duration::from_secs(300);

/// Bytes of a server's answer about the room in one directory: two numbers, and XML around them.
pub const QUOTA_ANSWER_BYTES_MAX: usize = 256 * 1024;

// --- What a tree may be ------------------------------------------------------------------------

/// Directories inside each other: a server that lists a directory in itself would lead down for ever.
pub const TREE_DEPTH_MAX: usize = 128;
/// Bytes of the path from a tree's root: no file system here opens a longer one (`PATH_MAX`).
pub const TREE_PATH_BYTES_MAX: usize = 4095;
/// Entries of one directory of a tree: ten times the largest that sites have. One that never ends is an error.
pub const DIRECTORY_ENTRIES_MAX: u64 = 10_000_000;
/// Entries of a listing for people that are sorted: they are held in memory, about 100 bytes each.
pub const LISTING_SORTED_MAX: usize = 100_000;
/// Directories that a recursive listing still has to look at: their names are held in memory, about 100 bytes each. A tree
/// is gone down first, so that these are siblings of those on the way down.
pub const LISTING_DIRECTORIES_MAX: usize = 1_000_000;
/// Entries of a directory of a tree up to which it is listed again when its listing breaks off: so many names of those that
/// were told are kept, of about 100 bytes each, for each directory that is being listed.
pub const LISTED_AGAIN_MAX: usize = 20_000;
/// Pauses in front of further attempts to get a checksum from a server: one that is busy now may not be in a second. Where it is
/// still waited for, the last one is repeated.
pub const DIGEST_PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(600), Duration::from_secs(2)];
/// Pauses in front of further attempts to list a directory whose listing broke off: one lost connection is nothing, a server
/// that loses three is not to be asked for more.
pub const LISTING_PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Entries that travel together from the reader of a listing to its user.
pub const LISTING_BATCH: usize = 256;
/// Directories of one tree that are listed at the same time: each costs round trips and little else.
pub const TREE_LISTINGS_MAX: usize = 8;
/// Files and directories of a tree that are held in memory between finding and copying them; what waits
/// beyond that waits in a temporary file.
pub const BACKLOG_RECORDS: usize = 4096;
/// Files that wait to be copied before no further directory is listed: the temporary file has 100 to 200 MB
/// then.
pub const BACKLOG_FILES_MAX: u64 = 1_000_000;
/// Directories of a target that are known to be there. More are asked for a second time.
pub const DIRECTORIES_KNOWN_MAX: usize = 16_384;
/// Directories of a target that are open for small files. An eighth of all descriptors where that is less.
pub const DIRECTORIES_OPEN_MAX: usize = 128;
/// Files of a tree that are copied at the same time, at most.
pub const TREE_PARALLEL_MAX: usize = 64;
/// Sources of one command that are looked at at the same time before anything is copied: as many as files are copied then,
/// on the same connections.
pub const SOURCES_LOOKED_AT_MAX: usize = 8;
/// Failures of a tree's files one after the other that would strike any other file too (a host that cannot be
/// reached, no space left): a million of them are of no use, and each may take as long as patience allows.
pub const TREE_FAILURES_ALIKE_MAX: u32 = 50;
/// Bytes of one glob pattern.
pub const GLOB_BYTES_MAX: usize = 4096;

const _: () = {
    // Two batches of the backlog are in memory, and a batch of a listing is less than one of them.
    assert!(LISTING_BATCH < BACKLOG_RECORDS && (BACKLOG_RECORDS as u64) < BACKLOG_FILES_MAX);
};

// --- XML, on both sides ------------------------------------------------------------------------

/// Bytes of an element's or attribute's name, and of a namespace.
pub const XML_NAME_BYTES_MAX: usize = 1024;
/// Attributes of one element: they are compared with each other. RFC 5854 has three, Rucio writes four,
/// namespaces come on top.
pub const XML_ATTRIBUTES_MAX: usize = 64;

// --- The data path -----------------------------------------------------------------------------

/// Bytes moved per system call: 256 KiB costs 2 % more than 1 MiB and fits the second-level cache.
pub const IO_BYTES: usize = 256 * 1024;
/// Plaintext of one TLS record (RFC 8446, 5.1).
pub const TLS_RECORD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a message about TLS itself behind the handshake (RFC 8446, 4.6): tickets, of which real ones have 0.2 to 2 kB.
pub const TLS_HANDSHAKE_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Memory for bytes that arrived before the ones in front of them, for targets written in order.
pub const REORDER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The least of it that a copy has, however many there are: as much as the smallest request, so that bytes can come in order.
pub const REORDER_BYTES_MIN: u64 = 256 * 1024;
/// The same memory of all copies of a process, beside the least that each has: four alone have as much as one.
pub const REORDER_ALL_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes received since the journal last told of them: what a killed copy may fetch again.
pub const JOURNAL_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Time since the journal was last written.
pub const JOURNAL_INTERVAL: Duration = Duration::from_secs(1);

const _: () = {
    assert!(REQUEST_LINE_BYTES_MAX < REQUEST_HEAD_BYTES_MAX);
    assert!(IO_BYTES.is_multiple_of(TLS_RECORD_BYTES_MAX));
    assert!(REORDER_BYTES_MIN <= REORDER_BYTES_MAX && REORDER_BYTES_MAX <= REORDER_ALL_BYTES_MAX / 2);
    // The promise is 64 MiB plus what was in flight.
    assert!(JOURNAL_BYTES_MAX <= 64 * 1024 * 1024);
    assert!(REQUEST_HEAD_BYTES_MAX <= IO_BYTES && RESPONSE_HEAD_BYTES_MAX <= IO_BYTES);
    // The side that waits for a request closes later than the one that would send one.
    assert!(IDLE_CONNECTION_MAX.as_secs() * 2 < IDLE_MAX.as_secs());
    assert!(IDLE_PER_HOST_MAX < IDLE_CONNECTIONS_MAX);
    // Beyond it, threads that serve connections would wait for those that wait for a dead disk.
    assert!(DEVICE_THREADS_MAX < BLOCKING_THREADS_MAX / 4 * 3);
    assert!(2 * BLOCKING_THREADS_KEPT < BLOCKING_THREADS_SPARE);
    // What is waited for is not forgotten meanwhile.
    assert!(GUESS_WAIT_MAX.as_secs() < GUESSES_AGE_MAX.as_secs());
    // Where there are few threads, half of them at least are for disks.
    assert!(DIGESTS_RUNNING_MAX + PASSWORDS_CHECKED_MAX + 2 <= BLOCKING_THREADS_KEPT);
    assert!(BLOCKING_THREADS_KEPT * 2 <= BLOCKING_THREADS_MIN && BLOCKING_THREADS_MIN < BLOCKING_THREADS_MAX);
    // One client alone takes neither all turns at the disk nor all threads.
    assert!(0 < DISK_OPERATIONS_PER_CLIENT_MAX && 2 * DISK_OPERATIONS_PER_CLIENT_MAX < DISK_OPERATIONS_MAX);
    assert!(0 < DIGESTS_PER_CLIENT_MAX && 2 * DIGESTS_PER_CLIENT_MAX < DIGESTS_RUNNING_MAX);
    // A graceful stop does not cut those that read their answer.
    assert!(BODY_DRAIN_WHOLE_MAX.as_secs() < DRAIN_MAX.as_secs());
    // A listing of the largest kind can be made within one client's part, and a few requests of the longest can be taken.
    assert!(LISTING_PAGE_BYTES <= LISTINGS_BYTES_MAX / CLIENT_PART);
    assert!(ROOT_ASKED_BYTES_MAX * 4 <= ROOT_MEMORY_BYTES_MAX / CLIENT_PART);
    // A body that is refused for its size is drained, so that the client sees the answer.
    assert!(DAV_REQUEST_BYTES_MAX as u64 <= BODY_DRAIN_BYTES_MAX);
    assert!(XML_NAME_BYTES_MAX < DAV_REQUEST_BYTES_MAX && XML_NAME_BYTES_MAX < MULTISTATUS_TOKEN_BYTES_MAX);
    assert!(FINAL_LINE_BYTES_MAX <= MARKER_LINE_BYTES_MAX && COPY_FIELDS_BYTES_MAX > REQUEST_HEAD_BYTES_MAX);
    // A URL of the longest kind still is one piece of text.
    assert!(METALINK_URL_BYTES_MAX < METALINK_TOKEN_BYTES_MAX);
    // What we ask for, we answer: the shortest range takes four bytes.
    assert!(RANGE_HEADER_BYTES_MAX / 4 <= RANGES_MAX && RANGE_HEADER_BYTES_MAX < REQUEST_HEAD_BYTES_MAX);
    assert!(RANGE_HEADER_BYTES_OWN < REQUEST_HEAD_BYTES_MAX);
    assert!(MULTIPART_BOUNDARY_BYTES_MAX < MULTIPART_HEAD_BYTES_MAX);
};

// --- What an emulated network may be -----------------------------------------------------------

/// Bytes of a scenario file: a thousand links with a page of events fit many times.
pub const WAN_SCENARIO_BYTES_MAX: usize = 1024 * 1024;
/// Sites and routers together: they are numbered in the last byte of 198.18.0.0/24.
pub const WAN_NODES_MAX: usize = 250;
/// Links: each is two devices and two directions with their own queues and perhaps threads.
pub const WAN_LINKS_MAX: usize = 1000;
/// Bytes of a site's, router's or link's name: a label of a host name (RFC 1035, 2.3.4).
pub const WAN_NAME_BYTES_MAX: usize = 63;
/// Bytes of the name of a congestion control: the kernel's `TCP_CA_NAME_MAX` less its final zero.
pub const WAN_CONGESTION_CONTROL_BYTES_MAX: usize = 15;
/// Bytes of an IP packet: IPv6 needs links that carry 1280 (RFC 8200, 5).
pub const WAN_MTU_BYTES_MIN: u32 = 1280;
/// Bytes of an IP packet: its own length field, and what TUN and veth devices accept.
pub const WAN_MTU_BYTES_MAX: u32 = 65_535;
/// Bytes on the wire around an IP packet: Ethernet's 38, and room for what tunnels and tags add.
pub const WAN_FRAMING_BYTES_MAX: u32 = 256;
/// Bits per second on the wire: below it one packet takes more than a second and TCP gives up.
pub const WAN_RATE_BITS_PER_S_MIN: u64 = 8000;
/// Bits per second on the wire: 400G Ethernet. No emulator on one machine comes near it.
pub const WAN_RATE_BITS_PER_S_MAX: u64 = 400_000_000_000;
/// One way: the Moon is 1.3 s away. More is a mistake in the unit.
pub const WAN_DELAY_MAX: Duration = Duration::from_secs(10);
/// Bytes that may wait on one direction: they are held in this machine's memory.
pub const WAN_QUEUE_BYTES_MAX: u64 = 16 << 30;
/// Full packets that fit any queue whose size is not given. One super-packet of 64 KiB at an MTU of 1500 is 45
/// packets at once, which any switch takes; and a sender that shares its cores is away for a millisecond at
/// times, which at 1 Gb/s is 81: a shorter queue would make the link idle.
pub const WAN_QUEUE_PACKETS_MIN: u64 = 128;
/// When an event may happen: nothing runs longer, and more is a mistake in the unit.
pub const WAN_EVENT_AT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time for which one super-packet may occupy the slowest link of its way: it arrives at once, while a real
/// path would have spread its packets.
pub const WAN_QUANTUM_MAX: Duration = Duration::from_micros(250);
/// Bytes of a super-packet: what every kernel and both families of addresses allow.
pub const WAN_SUPER_PACKET_BYTES_MAX: u32 = 65_536;
/// Bytes of `gso_max_size` beyond the packets that are to fit: the kernel keeps `MAX_TCP_HEADER + 1` of it
/// (257 to 385, by its configuration) for headers, and refuses values below that.
pub const WAN_SUPER_PACKET_HEADER_BYTES: u32 = 512;
/// Bytes of one socket's buffer inside the namespaces: the kernel counts them in a signed 32-bit number.
pub const WAN_BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Bits per second that an unlimited link counts for where a size follows from its rate: about what a core
/// or two forward.
pub const WAN_UNLIMITED_BITS_PER_S: u64 = 10_000_000_000;
/// Packets in a device's own queue in front of the emulated one: 500 are lost as soon as the emulator is not
/// scheduled for a few milliseconds.
pub const WAN_DEVICE_QUEUE_PACKETS: u32 = 10_000;
/// Packets that netem holds for a direction without a rate, where only the delay keeps them: 1.2 s at
/// 40 Gb/s.
pub const WAN_NETEM_PACKETS_MAX: u64 = 4_000_000;
/// Jitter that netem can do: it counts it in a signed 32-bit number of nanoseconds and cuts it there.
pub const WAN_NETEM_JITTER_MAX: Duration = Duration::from_nanos(i32::MAX as u64);

const _: () = {
    // Addresses end in index + 1.
    assert!(WAN_NODES_MAX < 255);
    assert!(
        WAN_QUEUE_BYTES_MAX >= WAN_QUEUE_PACKETS_MIN * (WAN_MTU_BYTES_MAX + WAN_FRAMING_BYTES_MAX) as u64
    );
    assert!(WAN_BUFFER_BYTES_MAX <= i32::MAX as u64);
};

// --- root:// -----------------------------------------------------------------------------------

/// Requests that a client has under way on one connection of a session over root://. XRootD takes four for each (`maxPio` in
/// XrdXrootdProtocol.hh) and then reads none of the whole session until one of them is answered.
pub const ROOT_REQUESTS_PER_CONNECTION_MAX: usize = 4;
/// Bytes of the arguments of one request over root://: XRootD's own limit, which its clients know.
pub const ROOT_ARGUMENT_BYTES_MAX: u32 = 2 * 1024 * 1024;
/// Bytes of the arguments of a request of a client that is not logged in: names, and credentials. Tokens and proxies'
/// certificates have some kilobytes.
pub const ROOT_LOGIN_BYTES_MAX: u32 = 64 * 1024;
/// Without a request from a session that has a file open: as long as an event takes to be looked at.
pub const ROOT_IDLE_MAX: Duration = Duration::from_secs(3600);
/// Without a request from a session that has none open, and whose client has proved its identity: XRootD's clients keep a
/// connection to a server for 5 minutes, those to a redirector for 20. Of other clients such a session ends like an
/// idle connection of HTTP, after [`IDLE_MAX`]: clients make another one when they need it.
pub const ROOT_IDLE_PROVED_MAX: Duration = Duration::from_secs(1200);
/// Memory for requests over root:// that are half there, or wait for their turn, and for answers that were not taken, of all
/// connections together, beside what each has without being counted.
pub const ROOT_MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of requests that each connection may have without being counted: a path of the longest kind, or the list of a
/// `readv`, and what was read ahead.
pub const ROOT_INPUT_BYTES_FREE: usize = 32 * 1024;
/// Bytes of answers that each connection may have without being counted: what is made ahead of a socket when there is no
/// memory for more.
pub const ROOT_OUTPUT_BYTES_FREE: usize = 64 * 1024;
/// In such steps it is counted.
pub const ROOT_MEMORY_STEP_BYTES: usize = 64 * 1024;
/// Between two looks at whether there is memory again for a request that waits for some.
pub const ROOT_MEMORY_PAUSE: Duration = Duration::from_millis(100);
/// Paths of one `statx` or `prepare` that are looked at before others have their turns.
pub const ROOT_PATHS_PER_TURN: usize = 64;
/// Bytes of a path over root://: twice what Linux opens (`PATH_MAX`), for slashes that do not count. Over HTTP a request
/// line has no more.
pub const ROOT_PATH_BYTES_MAX: usize = 8192;
/// Paths of one question for what has become of their staging (`query prepare`): each is looked at. gfal2 asks for a few
/// hundred at a time.
pub const ROOT_PREPARED_PATHS_MAX: usize = 1024;
/// Connections that join a session, beside the one that it began with: what XRootD's servers announce as `bind_max`.
pub const ROOT_BOUND_MAX: usize = 15;
/// Requests on one connection over root:// that have no answer yet: a client asks for no more, a server reads no more.
pub const ROOT_REQUESTS_MAX: usize = 256;
/// Those of them that wait for a disk, or for something else, at the same time: some of the many that all clients
/// together may have.
pub const ROOT_TASKS_MAX: usize = 16;
/// Bytes of answers to small requests that wait to be sent on one connection; when there are so many, no other
/// request is read.
pub const ROOT_ANSWERS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of requests of one connection that wait for their turn or their answer; when there are so many, no other is
/// read. Room for a few of the largest, and for thousands of those that clients send.
pub const ROOT_ASKED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes that one read over root:// asks for, as XRootD's clients do, and of one answer to a plain read: what its length
/// was promised for cannot be interrupted by other answers.
pub const ROOT_READ_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Pages of one message of `pgread`: as XRootD's servers send them.
pub const ROOT_PAGES_MAX: u64 = 512;
/// Elements of `readv`, `writev` and `clone`: what XRootD's servers take and its clients ask for before they split.
pub const ROOT_VECTOR_ELEMENTS_MAX: usize = 1024;
/// Bytes of one element of `readv`: what XRootD's servers announce as `readv_ior_max`.
pub const ROOT_VECTOR_ELEMENT_BYTES_MAX: u32 = 2_097_136;
/// Paths of one `prepare` or `statx`: each is a look at the disk, and an answer is waited for; and 2 MiB of one-letter paths
/// would take thirty times their room.
pub const ROOT_PATHS_MAX: usize = 16_384;
/// Bytes of a line of a listing that a client reads: a name of the longest kind, or a stat text with a checksum.
pub const ROOT_LISTING_LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a listing that are made at a time: each part is a task of its own, and a slow reader holds two of them.
pub const ROOT_LISTING_PIECE_BYTES: usize = 256 * 1024;
/// Files that one session has open at the same time: each is a descriptor. A cache in front of us has one session for
/// all of its readers.
pub const ROOT_OPEN_FILES_PER_SESSION_MAX: usize = 4096;
/// Files that all sessions together have open.
pub const ROOT_OPEN_FILES_MAX: usize = 16_384;
/// Wrong pages of one `pgwrite`: XRootD's own limit.
pub const ROOT_WRONG_PAGES_PER_REQUEST_MAX: usize = 127;
/// Wrong pages of one file that were not sent again: XRootD's own limit.
pub const ROOT_WRONG_PAGES_PER_FILE_MAX: usize = 256;
/// Separate pieces of a file that is written whose checksums are remembered (50 bytes each), until all of them are one.
/// A client that writes in more pieces at a time than this writes no stream.
pub const ROOT_WRITTEN_PIECES_MAX: usize = 4096;
/// Attributes that one `fattr` may name.
pub const ROOT_ATTRIBUTES_MAX: usize = 16;
/// Bytes of an answer over root:// that is words: why something failed, where to go, how to log in. XRootD's are
/// a few hundred.
pub const ROOT_WORDS_BYTES_MAX: usize = 32 * 1024;
/// Bytes of an answer over root:// that is collected before it is looked at.
pub const ROOT_ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Servers of one answer to `locate` that are looked at: more than any cluster has. Each is compared with all others.
pub const ROOT_LOCATIONS_MAX: usize = 4096;
/// Wrong pages of one lane over root:// that are asked for again: a network that makes more of them, or a server,
/// is broken.
pub const ROOT_WRONG_PAGES_MAX: usize = 64;
/// Redirects followed for one request over root://: as many as XRootD's clients do, because a manager is asked again
/// for every replica that fails.
pub const ROOT_REDIRECTS_MAX: usize = 16;
/// Time for which a request over root:// waits in all because servers ask for it. Managers ask for 5 s where they
/// look for a file.
pub const ROOT_WAIT_MAX: Duration = Duration::from_secs(120);
/// Time for which a destination of a third-party copy over root:// may have no more bytes than before: a source may have to
/// fetch them from tape first, and a destination has others to make. XRootD's client waits so long for the whole copy.
pub const ROOT_TPC_STALL_MAX: Duration = Duration::from_secs(1800);
/// Time for which such a destination may answer nothing at all, though it is asked how far it is.
pub const ROOT_TPC_SILENCE_MAX: Duration = Duration::from_secs(300);
/// The same for more bytes, when the source has closed the client's connection: a destination may try for half an hour to reach
/// a source that is gone.
pub const ROOT_TPC_ORPHAN_MAX: Duration = Duration::from_secs(20);
/// A destination is asked how far it is so often.
pub const ROOT_TPC_PROGRESS: Duration = Duration::from_secs(1);
/// Time for each step of leaving a third-party copy over root:// that has failed or is not wanted any more: the order to end
/// it, the end of the file, the removal of what is there of it.
pub const ROOT_TPC_LEAVE_MAX: Duration = Duration::from_secs(5);
/// Bytes per second that a server computes a checksum of at the least, of a file that has just been copied.
pub const ROOT_TPC_CHECKSUM_BYTES_PER_S: u64 = 20_000_000;
/// Bytes of a file that one write over root:// has: pages beside their checksums stay in a processor's cache.
pub const ROOT_WRITE_BYTES: usize = 1024 * 1024;
/// Bytes of writes over root:// that are not answered: as many as XRootD's clients have.
pub const ROOT_WRITTEN_BYTES_MAX: usize = 32 * ROOT_WRITE_BYTES;
/// Bytes of an answer that lists attributes with their values: on some file systems one file can have 400 MB of them.
pub const ROOT_ATTRIBUTE_LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// After so long a client that asks for what may take long (a checksum, `sync`, `locate`) is told that the answer comes
/// later, and does not take the silence for a server that is gone.
pub const ROOT_SOON: Duration = Duration::from_secs(1);
/// Within so long it is told that the answer comes: a file of 1 TB at 300 MB/s.
pub const ROOT_LATER: Duration = Duration::from_secs(3600);
/// Characters of a host's name, without the dot behind it (RFC 1035, section 2.3.4, as text).
pub const HOST_NAME_BYTES_MAX: usize = 253;
/// Characters of a key by which two servers find each other for a third-party copy over root://: XRootD's have 24.
pub const ROOT_RENDEZVOUS_KEY_BYTES_MAX: usize = 256;
/// Time for which a destination waits for the client at the source, and the client's word for the destination, if the client
/// says nothing else: as in XRootD.
pub const ROOT_RENDEZVOUS_TTL: Duration = Duration::from_secs(7);
/// The longest such time that a client may ask for: as in XRootD.
pub const ROOT_RENDEZVOUS_TTL_MAX: Duration = Duration::from_secs(15);
/// Words of clients, and destinations that wait for one, that a server keeps: a few kilobytes each at most.
pub const ROOT_RENDEZVOUS_MAX: usize = 4096;
/// The same of one address. Sites start copies of many files from one machine.
pub const ROOT_RENDEZVOUS_PER_CLIENT_MAX: usize = 1024;
/// Connections that a destination is told to have at most: as in XRootD.
pub const ROOT_THIRD_PARTY_STREAMS_MAX: u8 = 15;
/// Keys of one question for settings. Real ones have a handful, and an answer may be longer than its question.
pub const ROOT_CONFIG_KEYS_MAX: usize = 1024;
/// Requests for blocks of a file that a client is advised to have running: XRootD's own number.
pub const ROOT_PARALLEL_READS: u32 = 5;
/// Bytes of `/etc/passwd` or `/etc/group` that are read: a large site's have a few hundred kilobytes.
pub const NAMES_BYTES_MAX: u64 = 16 * 1024 * 1024;
