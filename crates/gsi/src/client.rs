//! The client's side.

use std::sync::Arc;

use gridlane_auth::make::pem;
use gridlane_auth::{Cause, Refusal};
use openssl::pkey::{Private, Public};
use openssl::rsa::Rsa;

use crate::agreement::Agreement;
use crate::buffer::{Buffer, Kind};
use crate::cipher::{self, SessionKey};
use crate::exchange::{DELEGATES_SINCE, TAG_BYTES, VERSION, failed, malformed, offers, step, tag};
use crate::keys::{self, key_of_certificate, private_key};
use crate::parameters::Parameters;

/// A certificate or a proxy, and its key. It has no `Debug`.
pub struct ClientCredential {
    /// The chain in PEM, the first certificate in front.
    chain: String,
    key: Rsa<Private>,
    /// The public key in PEM.
    public_key: Vec<u8>,
    /// The name of the authority, by its hash.
    issuer_hash: String,
}

impl ClientCredential {
    /// A chain (DER, the first certificate in front) with the first one's key (PKCS#8 or PKCS#1, in DER).
    ///
    /// `issuer_hash`: eight digits, as OpenSSL has them, of the name of the authority that the chain ends at. `name` is
    /// for people: `the proxy of /tmp/x509up_u1000`. Refused where the key is no RSA key.
    pub fn new(
        chain: &[Vec<u8>],
        key: &[u8],
        issuer_hash: &str,
        name: &str,
    ) -> Result<ClientCredential, Refusal> {
        let key = private_key(key, name)?;
        let public_key = key.public_key_to_pem().map_err(failed("writing the public key"))?;
        let chain = chain.iter().map(|der| pem::encode(pem::CERTIFICATE, der)).collect();
        Ok(ClientCredential { chain, key, public_key, issuer_hash: issuer_hash.to_owned() })
    }
}

/// What the owner of a [`Client`] decides.
pub trait Decisions {
    /// Whether the server's certificate (DER) is believed, and is that of the server that was meant.
    fn check_server(&mut self, certificate: &[u8]) -> Result<(), Refusal>;

    /// Signs a request for a proxy (PEM), as the server wants it: the proxy (PEM).
    fn sign_proxy(&mut self, request: &[u8]) -> Result<Vec<u8>, Refusal>;

    /// Hears why a server that asked for a proxy was not given the question.
    fn gives_none(&mut self, _why: &Refusal) {}
}

/// The client's side of an exchange. [`begin`](Client::begin) gives the first message; each message of the server goes to
/// [`receive`](Client::receive), which gives the answer, until the server says that the client is in.
pub struct Client {
    credential: Arc<ClientCredential>,
    delegates: bool,
    pads: bool,
    tag: [u8; TAG_BYTES],
    /// TLS, or a key exchange that is strong enough, protects what is sent: a proxy may be given.
    may_delegate: bool,
    /// Once the server has proved itself: its key, and the key of the session.
    proved: Option<(Rsa<Public>, SessionKey)>,
}

impl Client {
    /// Begins, with what the server says of itself in the answer to the login. `delegates`: a proxy is made for the server
    /// if it asks for one, and TLS protects the connection (`is_tls`) or the key exchange is strong enough.
    pub fn begin(
        parameters: &Parameters,
        credential: Arc<ClientCredential>,
        delegates: bool,
        is_tls: bool,
    ) -> Result<(Client, Vec<u8>), Refusal> {
        let tag = tag()?;
        let delegates = delegates && parameters.version >= DELEGATES_SINCE;
        let module: &[u8] = if parameters.pads { b"ssl" } else { b"sslnopad" };
        let main = Buffer::new(step::CLIENT_BEGINS).with(Kind::TAG, tag).encode();
        let message = Buffer::new(step::CLIENT_BEGINS)
            .with(Kind::CRYPTO_MODULE, module)
            .with_number(Kind::VERSION, VERSION)
            .with(Kind::ISSUER_HASH, format!("{}.0", credential.issuer_hash))
            .with_number(Kind::CLIENT_OPTIONS, if delegates { offers::SIGNS | offers::WANTS_TO } else { 0 })
            .with(Kind::MAIN, main);
        let client =
            Client { credential, delegates, pads: parameters.pads, tag, may_delegate: is_tls, proved: None };
        Ok((client, message.encode()))
    }

    /// The answer to a message of the server.
    pub fn receive(&mut self, message: &[u8], decisions: &mut dyn Decisions) -> Result<Vec<u8>, Refusal> {
        let message = Buffer::parse(message)?;
        match (message.step, self.proved.take()) {
            (step::SERVER_PROVES, None) => self.prove(&message, decisions),
            (step::SERVER_ASKS, Some(proved)) => self.delegate(&message, proved, decisions),
            (step, _) => Err(malformed(format!("the server's message {step} makes no sense here"))),
        }
    }

    /// The key that was agreed on, with which requests are signed; once the server has proved itself.
    pub fn session_key(&self) -> Option<&SessionKey> {
        self.proved.as_ref().map(|(_, key)| key)
    }

    fn prove(&mut self, message: &Buffer, decisions: &mut dyn Decisions) -> Result<Vec<u8>, Refusal> {
        let certificates = pem::certificates(message.need(Kind::X509, "the server's certificate")?);
        let certificates = certificates.map_err(|error| malformed(error.message()))?;
        let [certificate] = certificates.as_slice() else {
            return Err(malformed(format!(
                "the server sends {} certificates, and not its own alone",
                certificates.len()
            )));
        };
        decisions.check_server(certificate)?;
        let server = key_of_certificate(certificate, "the server's")?;
        let main = Buffer::parse(message.need(Kind::MAIN, "its main part")?)?;
        self.check_tag(&main, &server)?;
        choose(message, Kind::CIPHER_ALGORITHM, &[cipher::NAME], "ciphers")?;
        let digest = choose(message, Kind::DIGEST_ALGORITHM, &DIGESTS, "digests")?;
        let part = message.need(Kind::CIPHER, "the server's part of the key exchange")?;
        let part = keys::recover(&server, part, "the server's part of the key exchange")?;
        let (agreement, secret) = Agreement::answer(&part, self.pads)?;
        let key = SessionKey::of_secret(&secret)?;
        self.may_delegate |= agreement.may_delegate();
        let own = Arc::clone(&self.credential);
        let main = self
            .main(step::CLIENT_PROVES, &main)?
            .with(Kind::X509, own.chain.as_bytes())
            .with(Kind::TAG, self.renew_tag()?);
        let answer = Buffer::new(step::CLIENT_PROVES)
            .with(Kind::CRYPTO_MODULE, *b"ssl")
            .with(Kind::CIPHER, keys::sign(&own.key, &agreement.to_bytes()?)?)
            .with(Kind::PUBLIC_KEY, own.public_key.as_slice())
            // With the bytes of the initialisation vector.
            .with(Kind::CIPHER_ALGORITHM, format!("{}#16", cipher::NAME))
            .with(Kind::DIGEST_ALGORITHM, digest)
            .with(Kind::MAIN, key.seal(&main.encode())?);
        self.proved = Some((server, key));
        Ok(answer.encode())
    }

    fn delegate(
        &mut self,
        message: &Buffer,
        (server, key): (Rsa<Public>, SessionKey),
        decisions: &mut dyn Decisions,
    ) -> Result<Vec<u8>, Refusal> {
        let main = Buffer::parse(&key.open(message.need(Kind::MAIN, "its main part")?)?)?;
        self.check_tag(&main, &server)?;
        let mut answer = self.main(step::CLIENT_DELEGATES, &main)?;
        // A proxy that it does not get is no reason for the server to refuse the client.
        let made = match self.delegates {
            true if !self.may_delegate => {
                let what =
                    "the server's key exchange is too weak for a proxy (XRootD before 5.6): use roots://";
                let why = Refusal::new(Cause::Unacceptable, what);
                decisions.gives_none(&why);
                Err(why)
            }
            true => decisions.sign_proxy(main.need(Kind::X509_REQUEST, "the request for a proxy")?),
            false => Err(Refusal::new(Cause::Unacceptable, "Not allowed to sign proxy requests")),
        };
        answer = match made {
            Ok(proxy) => answer.with(Kind::X509, proxy),
            Err(refusal) => answer.with(Kind::MESSAGE, refusal.message),
        };
        let answer = Buffer::new(step::CLIENT_DELEGATES).with(Kind::MAIN, key.seal(&answer.encode())?);
        self.proved = Some((server, key));
        Ok(answer.encode())
    }

    /// Checks that the tag which was sent last comes back, signed by the server.
    fn check_tag(&self, main: &Buffer, server: &Rsa<Public>) -> Result<(), Refusal> {
        let signed = main.need(Kind::SIGNED_TAG, "the signed tag")?;
        match keys::recover(server, signed, "the tag")? == self.tag {
            true => Ok(()),
            false => Err(Refusal::new(
                Cause::BadSignature,
                "gsi: the server has signed another tag than it was sent",
            )),
        }
    }

    /// The main part of an answer, with the server's tag signed.
    fn main(&self, step: u32, theirs: &Buffer) -> Result<Buffer, Refusal> {
        let tag = theirs.need(Kind::TAG, "a tag")?;
        // More than a tag would be a signature of something that we do not know.
        if tag.len() > 2 * TAG_BYTES {
            return Err(malformed("the server's tag is too long"));
        }
        Ok(Buffer::new(step).with(Kind::SIGNED_TAG, keys::sign(&self.credential.key, tag)?))
    }

    fn renew_tag(&mut self) -> Result<[u8; TAG_BYTES], Refusal> {
        self.tag = tag()?;
        Ok(self.tag)
    }
}

/// Digests, the best one first. Nothing of the exchange is signed with any, so that those of XRootD before 5.6 do no harm.
const DIGESTS: [&str; 3] = ["sha256", "sha1", "md5"];

/// The first of ours that the server has as well.
fn choose(message: &Buffer, kind: Kind, ours: &[&'static str], what: &str) -> Result<&'static str, Refusal> {
    let theirs = message.text(kind).unwrap_or_default();
    ours.iter().copied().find(|name| theirs.split(':').any(|their| their == *name)).ok_or_else(|| {
        let what =
            format!("gsi: of the server's {what} ({theirs}) none is known here: {} is", ours.join(", "));
        Refusal::new(Cause::Unacceptable, what)
    })
}
