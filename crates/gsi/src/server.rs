//! The server's side.
//!
//! ```text
//! receive(1000) ─▶ Say(2001)
//! receive(1001) ─▶ Judge(chain)   the owner judges it, and then: admit ─▶ the client is in
//!                                                            or: ask(request) ─▶ 2002
//! receive(1002) ─▶ Delegated
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use gridlane_auth::make::{Contents, pem};
use gridlane_auth::{Cause, Refusal};
use openssl::memcmp;
use openssl::pkey::{Private, Public};
use openssl::rsa::Rsa;

use crate::agreement::Agreement;
use crate::buffer::{Buffer, Kind};
use crate::cipher::{self, SessionKey};
use crate::exchange::{SIGNED_SINCE, TAG_BYTES, VERSION, malformed, offers, step, tag};
use crate::keys::{self, check_size, key_of_certificate, private_key, private_key_in_pem};

/// Seconds for which a server's part of the key exchange serves all its clients.
///
/// To sign it takes six operations with the private key, four times the rest of a login. A third party that gets hold of
/// the memory of the process can read what sessions of that minute have encrypted: proxies for the server, which are
/// signed for keys that never left it, and no data.
const PART_LASTS_S: i64 = 60;

/// The certificate of a host, its key, and its part of the key exchange. It has no `Debug`.
pub struct HostCredential {
    certificate: String,
    key: Rsa<Private>,
    issuer_hash: String,
    part: Mutex<Option<Arc<Part>>>,
}

/// A part of the key exchange, and its signature.
struct Part {
    agreement: Agreement,
    signed: Vec<u8>,
    until_s: i64,
}

impl HostCredential {
    /// The first certificate of the host's chain (DER) with its key (PKCS#8 in DER). `issuer_hash`: eight digits, as
    /// OpenSSL has them, of the name of the certificate's issuer.
    pub fn new(certificate: &[u8], key_pkcs8: &[u8], issuer_hash: &str) -> Result<HostCredential, Refusal> {
        let key = private_key(key_pkcs8, "this server")?;
        let certificate = pem::encode(pem::CERTIFICATE, certificate);
        Ok(HostCredential { certificate, key, issuer_hash: issuer_hash.to_owned(), part: Mutex::default() })
    }

    /// The same from PEM: the host's certificate, with any others behind it, and its key in another text or the same.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<HostCredential, Refusal> {
        let read = pem::certificates(certificates).and_then(|chain| {
            let contents = chain.first().map(|der| Contents::read(der)).transpose()?;
            Ok(chain.into_iter().next().zip(contents.map(|contents| contents.issuer.hash()).transpose()?))
        });
        let read = read.map_err(|error| malformed(error.message()))?;
        let (certificate, issuer_hash) =
            read.ok_or_else(|| malformed("there is no certificate of the host"))?;
        let key = private_key_in_pem(key, "this server")?;
        let own = key_of_certificate(&certificate, "this server's")?;
        if own.n() != key.n() || own.e() != key.e() {
            return Err(malformed("the key is not that of the host's certificate"));
        }
        let certificate = pem::encode(pem::CERTIFICATE, &certificate);
        Ok(HostCredential { certificate, key, issuer_hash, part: Mutex::default() })
    }

    /// What the server says of itself in the answer to a login, behind `gsi,`.
    pub fn parameters(&self) -> String {
        format!("v:{VERSION},c:ssl,ca:{}.0", self.issuer_hash)
    }

    fn part(&self, now_s: i64) -> Result<Arc<Part>, Refusal> {
        // Those that come meanwhile wait for it: they would need one as well.
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        // Also where the clock was set back.
        let is_good = |part: &&Arc<Part>| (part.until_s - PART_LASTS_S..part.until_s).contains(&now_s);
        if let Some(part) = part.as_ref().filter(is_good) {
            return Ok(Arc::clone(part));
        }
        let agreement = Agreement::new()?;
        let signed = keys::sign(&self.key, &agreement.to_bytes()?)?;
        let made = Arc::new(Part { agreement, signed, until_s: now_s.saturating_add(PART_LASTS_S) });
        *part = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// The next step of the server's owner.
pub enum ServerStep {
    /// This is sent, as an answer that asks for more.
    Say(Vec<u8>),
    /// The client has the key of the first of these certificates (DER). If the chain is believed, the client is
    /// admitted, or [asked](Server::ask) for a proxy before.
    Judge(Vec<Vec<u8>>),
    /// The client has answered the request for a proxy: with the proxy (PEM), or with why there is none. It is in.
    Delegated(Result<Vec<u8>, String>),
}

/// The server's side of an exchange.
pub struct Server {
    host: Arc<HostCredential>,
    state: State,
}

enum State {
    Begins,
    /// The client's proof is awaited.
    Waits(Box<Waiting>),
    /// The owner judges.
    Judged(Box<Proved>),
    /// A proxy is awaited.
    Asks(Box<Proved>),
    Over,
}

struct Waiting {
    part: Arc<Part>,
    tag: [u8; TAG_BYTES],
    pads: bool,
    is_offered: bool,
}

struct Proved {
    key: SessionKey,
    client: Rsa<Public>,
    /// Our tag that has to come back, or theirs that has to be signed.
    tag: Vec<u8>,
    is_offered: bool,
}

impl Server {
    /// Begins with a client that logs in.
    pub fn new(host: Arc<HostCredential>) -> Server {
        Server { host, state: State::Begins }
    }

    /// Looks at a message of the client's. `now_s`: seconds since 1970.
    pub fn receive(&mut self, message: &[u8], now_s: i64) -> Result<ServerStep, Refusal> {
        let message = Buffer::parse(message)?;
        match (message.step, std::mem::replace(&mut self.state, State::Over)) {
            (step::CLIENT_BEGINS, State::Begins) => self.begin(&message, now_s).map(ServerStep::Say),
            (step::CLIENT_PROVES, State::Waits(waiting)) => {
                self.check(&message, &waiting).map(ServerStep::Judge)
            }
            (step::CLIENT_DELEGATES, State::Asks(proved)) => {
                Ok(ServerStep::Delegated(take(&message, &proved)?))
            }
            (step, _) => Err(malformed(format!("the client's message {step} makes no sense here"))),
        }
    }

    /// True if the client, whose chain is judged, would sign a request for a proxy.
    pub fn may_ask(&self) -> bool {
        matches!(&self.state, State::Judged(proved) if proved.is_offered)
    }

    /// Asks the client, whose chain is believed, for a proxy: its request in PEM. The message to be sent.
    pub fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let State::Judged(mut proved) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(malformed("nothing was proved"));
        };
        let ours = tag()?;
        let main = Buffer::new(step::SERVER_ASKS)
            .with(Kind::SIGNED_TAG, keys::sign(&self.host.key, &proved.tag)?)
            .with(Kind::X509_REQUEST, request)
            .with(Kind::TAG, ours);
        let message = Buffer::new(step::SERVER_ASKS).with(Kind::MAIN, proved.key.seal(&main.encode())?);
        proved.tag = ours.to_vec();
        self.state = State::Asks(proved);
        Ok(message.encode())
    }

    /// The key of the session, with which the client signs its requests; once it has proved itself.
    pub fn session_key(&self) -> Option<&SessionKey> {
        match &self.state {
            State::Judged(proved) | State::Asks(proved) => Some(&proved.key),
            State::Begins | State::Waits(_) | State::Over => None,
        }
    }

    fn begin(&mut self, message: &Buffer, now_s: i64) -> Result<Vec<u8>, Refusal> {
        let version = message.number(Kind::VERSION).unwrap_or(0);
        if version < SIGNED_SINCE {
            let what = format!(
                "gsi: the client's version {version} does not sign its part of the key exchange (XRootD does since 4.9)"
            );
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        let module = message.text(Kind::CRYPTO_MODULE).unwrap_or_default();
        if !matches!(module.as_str(), "ssl" | "sslnopad") {
            let what = format!("gsi: the client encrypts with {module:?}, and this server with ssl alone");
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        let main = Buffer::parse(message.need(Kind::MAIN, "its main part")?)?;
        let theirs = main.need(Kind::TAG, "a tag")?;
        // More than a tag would be a signature of something that we do not know.
        if theirs.len() > 2 * TAG_BYTES {
            return Err(malformed("the client's tag is too long"));
        }
        let ours = tag()?;
        let part = self.host.part(now_s)?;
        let main = Buffer::new(step::SERVER_PROVES)
            .with(Kind::SIGNED_TAG, keys::sign(&self.host.key, theirs)?)
            .with(Kind::TAG, ours)
            .encode();
        let answer = Buffer::new(step::SERVER_PROVES)
            .with(Kind::CRYPTO_MODULE, *b"ssl")
            .with(Kind::CIPHER, part.signed.as_slice())
            .with(Kind::CIPHER_ALGORITHM, cipher::NAME)
            .with(Kind::DIGEST_ALGORITHM, "sha256")
            .with(Kind::X509, self.host.certificate.as_bytes())
            .with(Kind::MAIN, main);
        let is_offered =
            message.number(Kind::CLIENT_OPTIONS).unwrap_or(0) & (offers::SIGNS | offers::WANTS_TO) != 0;
        self.state = State::Waits(Box::new(Waiting { part, tag: ours, pads: module == "ssl", is_offered }));
        Ok(answer.encode())
    }

    fn check(&mut self, message: &Buffer, waiting: &Waiting) -> Result<Vec<Vec<u8>>, Refusal> {
        let cipher = message.text(Kind::CIPHER_ALGORITHM).unwrap_or_default();
        if cipher.split('#').next() != Some(cipher::NAME) {
            let what =
                format!("gsi: the client encrypts with {cipher:?}, and was offered {} alone", cipher::NAME);
            return Err(Refusal::new(Cause::Unacceptable, what));
        }
        let public = message.need(Kind::PUBLIC_KEY, "the client's public key")?;
        let client = Rsa::public_key_from_pem(public)
            .map_err(|_| malformed("the client's public key is no RSA key"))?;
        check_size(&client, "the client")?;
        let part = message.need(Kind::CIPHER, "the client's part of the key exchange")?;
        let part = keys::recover(&client, part, "the client's part of the key exchange")?;
        let key = SessionKey::of_secret(&waiting.part.agreement.secret(&part, waiting.pads)?)?;
        let main = Buffer::parse(&key.open(message.need(Kind::MAIN, "its main part")?)?)?;
        let chain = pem::certificates(main.need(Kind::X509, "the client's certificate")?);
        let chain = chain.map_err(|error| malformed(error.message()))?;
        let first = chain.first().ok_or_else(|| malformed("the client sends no certificate"))?;
        let own = key_of_certificate(first, "the client's")?;
        let same = |one: &Rsa<Public>, other: &Rsa<Public>| one.n() == other.n() && one.e() == other.e();
        if !same(&own, &client) {
            let what = "gsi: the client's key exchange is signed with another key than its certificate's";
            return Err(Refusal::new(Cause::BadSignature, what));
        }
        check_tag(&main, &client, &waiting.tag)?;
        // Clients before 5.0 send none any more; then nothing can be asked of them.
        let theirs = main.get(Kind::TAG).unwrap_or_default().to_vec();
        let is_offered = waiting.is_offered && (1..=2 * TAG_BYTES).contains(&theirs.len());
        self.state = State::Judged(Box::new(Proved { key, client, tag: theirs, is_offered }));
        Ok(chain)
    }
}

/// The proxy that a client has made, or why it has not.
fn take(message: &Buffer, proved: &Proved) -> Result<Result<Vec<u8>, String>, Refusal> {
    let main = Buffer::parse(&proved.key.open(message.need(Kind::MAIN, "its main part")?)?)?;
    check_tag(&main, &proved.client, &proved.tag)?;
    Ok(match main.get(Kind::X509) {
        Some(proxy) => Ok(proxy.to_vec()),
        None => Err(main.text(Kind::MESSAGE).unwrap_or_else(|| "the client sends none".to_owned())),
    })
}

/// Checks that our tag comes back, signed by the client.
fn check_tag(main: &Buffer, client: &Rsa<Public>, ours: &[u8]) -> Result<(), Refusal> {
    let theirs = keys::recover(client, main.need(Kind::SIGNED_TAG, "the signed tag")?, "the tag")?;
    match theirs.len() == ours.len() && memcmp::eq(&theirs, ours) {
        true => Ok(()),
        false => {
            Err(Refusal::new(Cause::BadSignature, "gsi: the client has signed another tag than it was sent"))
        }
    }
}
