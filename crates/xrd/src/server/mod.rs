//! The server's side of a connection, from the first byte on: what has come, and what it means.
//!
//! ```text
//! handshake ─▶ protocol ─▶ [TLS] ─▶ login ─▶ [auth] ─▶ requests
//!                              └──▶ bind ─▶ nothing that is answered: what others asked for is sent there
//! ```
//!
//! Its owner has the bytes and the socket. It shows what has come and was not used, again and again, and does what it
//! is told to do ([`Step`]); nothing is held here but where the connection is. A request is told of when all of it is
//! there, but for one that brings data: of that the owner takes off what follows the head itself ([`Step::Data`]).
//!
//! The order of things, and what a client is told that does not keep to it, is that of XRootD 5.5.3.

use gridlane_core::limits::{ROOT_ARGUMENT_BYTES_MAX, ROOT_LOGIN_BYTES_MAX};

mod signatures;

pub use self::signatures::Unseal;
use self::signatures::{Check, Signatures};
use crate::Malformed;
use crate::answer::{self, HandshakeAnswer, ProtocolAnswer, Signing};
use crate::flags::{ClientFlags, ServerFlags};
use crate::frame::{HANDSHAKE, HANDSHAKE_BYTES, PROTOCOL_VERSION, REQUEST_HEAD_BYTES, RequestHead, StreamId};
use crate::registry::{ErrorCode, RequestId};
use crate::request::{Auth, Bind, Call, Expect, Login, Protocol, Request, carries_data};

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is known.
    Handshake,
    /// The client has to log in.
    Introduction,
    /// The client has to prove it.
    Authentication,
    /// Everything may be asked.
    Session,
    /// It belongs to a session, and carries answers.
    Bound,
}

/// The server's side of a connection.
pub struct Machine {
    stage: Stage,
    has_tls: bool,
    demands_tls: TlsDemand,
    is_tls: bool,
    /// The requests that have to be signed.
    signing: Signing,
    /// Of a session in which they are looked at.
    signatures: Option<Signatures>,
    is_for_copies: bool,
}

/// The clients that have to begin TLS before the login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsDemand {
    /// Only those that want to: `roots://`.
    #[default]
    Never,
    /// Those that can; others log in without (`xrootd.tls capable login`).
    Capable,
    /// All of them: those that cannot are refused (`xrootd.tls login`).
    Always,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, which is used at once")]
pub enum Step {
    /// More bytes have to come: so many altogether before anything else happens. Room for them is made as they come.
    More(usize),
    /// These bytes are sent.
    Say(Vec<u8>),
    /// These bytes are sent; what comes behind what was used belongs to TLS' handshake. Then
    /// [`Machine::tls_begun`] is called.
    StartTls(Vec<u8>),
    /// A request is out of order, or makes no sense: it is answered with that error, and the connection ends if it says
    /// so.
    Refused(StreamId, RequestId, Malformed),
    /// The connection ends without a word.
    End,
    /// The client logs in. Answered by the owner, which calls [`Machine::logged_in`] when it lets it in.
    Login(StreamId, Login),
    /// The client proves its name. Answered by the owner, which calls [`Machine::authenticated`] when it believes it.
    Auth(StreamId, Auth),
    /// The connection wants to join a session. Answered by the owner, which calls [`Machine::bound`] when it does.
    Bind(StreamId, Bind),
    /// Something is asked for.
    Request(StreamId, Request),
    /// Something is asked for that brings data for files: everything behind its head is left to the owner, which has
    /// taken all of it off when the next step is made.
    Data(RequestHead),
    /// Something that is not answered.
    Ignored,
}

impl Machine {
    /// A connection that was just accepted. `has_tls`: it can become TLS.
    pub fn new(has_tls: bool) -> Machine {
        let (stage, demands_tls, signing) = (Stage::Handshake, TlsDemand::Never, Signing::default());
        Machine {
            stage,
            has_tls,
            demands_tls,
            is_tls: false,
            signing,
            signatures: None,
            is_for_copies: false,
        }
    }

    /// Has clients sign these of their requests. Those whose login gives them no key do so only if they are forced to.
    pub fn demanding_signatures(mut self, signing: Signing) -> Machine {
        self.signing = signing;
        self
    }

    /// Has clients begin TLS before they log in, when there is TLS at all.
    pub fn demanding_tls(mut self, demand: TlsDemand) -> Machine {
        self.demands_tls = if self.has_tls { demand } else { TlsDemand::Never };
        self
    }

    /// TLS protects the connection from here on.
    pub fn tls_begun(&mut self) {
        self.is_tls = true;
    }

    /// The login was answered with a session; `proves`: its client has to prove its name.
    pub fn logged_in(&mut self, proves: bool) {
        match proves {
            true => self.stage = Stage::Authentication,
            // As in XRootD, where clients begin to sign when they authenticate.
            false => self.stage = Stage::Session,
        }
    }

    /// The client has proved its name, and agreed on this key to sign its requests with.
    pub fn authenticated(&mut self, key: Option<Box<dyn Unseal>>) {
        self.stage = Stage::Session;
        self.signatures = Signatures::new(self.signing, key);
    }

    /// The connection belongs to a session.
    pub fn bound(&mut self) {
        self.stage = Stage::Bound;
    }

    /// True if the client has said that the session is for a third-party copy.
    pub fn is_for_copies(&self) -> bool {
        self.is_for_copies
    }

    /// True if the client is in, on this connection or as a part of another's session.
    pub fn is_in(&self) -> bool {
        matches!(self.stage, Stage::Session | Stage::Bound)
    }

    /// The meaning of `bytes`, all that has come and was not used; and how many of them are used by that.
    pub fn step(&mut self, bytes: &[u8]) -> (usize, Step) {
        if self.stage == Stage::Handshake {
            return self.handshake(bytes);
        }
        let Some(head) = bytes.first_chunk::<REQUEST_HEAD_BYTES>() else {
            return (0, Step::More(REQUEST_HEAD_BYTES));
        };
        let head_bytes = head;
        let head = match RequestHead::parse(head) {
            Ok(head) => head,
            Err(wrong) => {
                let (stream, id) =
                    (StreamId([head[0], head[1]]), RequestId(u16::from_be_bytes([head[2], head[3]])));
                return (0, Step::Refused(stream, id, wrong));
            }
        };
        if let Some(refusal) = self.refusal(&head) {
            return refusal;
        }
        if let Some(step) = self.unsigned(&head, head_bytes, bytes) {
            return (0, step);
        }
        if brings_data(head.id) {
            return (REQUEST_HEAD_BYTES, Step::Data(head));
        }
        let argument_max = if self.is_in() { ROOT_ARGUMENT_BYTES_MAX } else { ROOT_LOGIN_BYTES_MAX };
        if head.payload_len > argument_max {
            let wrong = Malformed::new(ErrorCode::ARG_TOO_LONG, "Request argument is too long");
            return (0, Step::Refused(head.stream, head.id, wrong.closing()));
        }
        let used = REQUEST_HEAD_BYTES + head.payload_len as usize;
        let Some(argument) = bytes.get(REQUEST_HEAD_BYTES..used) else { return (0, Step::More(used)) };
        (used, self.request(&head, argument))
    }

    /// What happens instead of a request whose signature is missing or wrong, or cannot be checked yet.
    fn unsigned(
        &mut self,
        head: &RequestHead,
        head_bytes: &[u8; REQUEST_HEAD_BYTES],
        bytes: &[u8],
    ) -> Option<Step> {
        let signatures = self.signatures.as_mut().filter(|_| head.id != RequestId::SIGVER)?;
        let used = REQUEST_HEAD_BYTES + head.payload_len as usize;
        match signatures.check(head, head_bytes, bytes.get(REQUEST_HEAD_BYTES..used)) {
            Ok(Check::Good) => None,
            // What is signed is held as a whole.
            Ok(Check::NeedsPayload) if head.payload_len > ROOT_ARGUMENT_BYTES_MAX => {
                let wrong = Malformed::new(ErrorCode::ARG_TOO_LONG, "Request argument is too long");
                Some(Step::Refused(head.stream, head.id, wrong.closing()))
            }
            Ok(Check::NeedsPayload) => Some(Step::More(used)),
            Err(wrong) => Some(Step::Refused(head.stream, head.id, wrong)),
        }
    }

    fn handshake(&mut self, bytes: &[u8]) -> (usize, Step) {
        let known = bytes.len().min(HANDSHAKE_BYTES);
        if bytes[..known] != HANDSHAKE[..known] {
            // No client of this protocol begins in another way, so none would understand an answer.
            return (0, Step::End);
        }
        if known < HANDSHAKE_BYTES {
            return (0, Step::More(HANDSHAKE_BYTES));
        }
        self.stage = Stage::Introduction;
        let mut said = Vec::new();
        HandshakeAnswer { version: PROTOCOL_VERSION, is_manager: false }.encode(&mut said);
        (HANDSHAKE_BYTES, Step::Say(said))
    }

    /// The fault that the head alone shows.
    fn refusal(&self, head: &RequestHead) -> Option<(usize, Step)> {
        let expected = match self.stage {
            Stage::Introduction => {
                matches!(head.id, RequestId::PROTOCOL | RequestId::LOGIN | RequestId::BIND)
            }
            Stage::Authentication => {
                matches!(head.id, RequestId::PROTOCOL | RequestId::AUTH | RequestId::PING)
            }
            // Requests come on the connection that the session began with. Data would have been announced there.
            Stage::Bound if brings_data(head.id) => return Some((0, Step::End)),
            Stage::Handshake | Stage::Session | Stage::Bound => true,
        };
        if expected {
            return None;
        }
        let what = match self.stage {
            Stage::Authentication => "Invalid request; user not authenticated",
            _ => "Invalid request; user not logged in",
        };
        let wrong = Malformed::new(ErrorCode::INVALID_REQUEST, what).closing();
        Some((0, Step::Refused(head.stream, head.id, wrong)))
    }

    fn request(&mut self, head: &RequestHead, argument: &[u8]) -> Step {
        let stream = head.stream;
        if self.stage == Stage::Bound {
            return Step::Ignored;
        }
        match head.id {
            RequestId::PROTOCOL => {
                return match Protocol::parse(&head.body, argument) {
                    Ok(asked) => self.protocol(stream, &asked),
                    Err(wrong) => Step::Refused(stream, head.id, wrong),
                };
            }
            // Without a key a signature proves nothing.
            RequestId::SIGVER => {
                let taken = self.signatures.as_mut().map(|signatures| signatures.take(head, argument));
                return match taken {
                    Some(Err(wrong)) => Step::Refused(stream, head.id, wrong),
                    Some(Ok(())) | None => Step::Ignored,
                };
            }
            RequestId::LOGIN if self.stage == Stage::Session && argument.is_empty() => {
                let wrong = Malformed::new(ErrorCode::ARG_MISSING, "Required argument not present");
                return Step::Refused(stream, head.id, wrong);
            }
            RequestId::LOGIN | RequestId::AUTH | RequestId::BIND if self.stage == Stage::Session => {
                let wrong = Malformed::new(ErrorCode::INVALID_REQUEST, "Invalid request code");
                return Step::Refused(stream, head.id, wrong);
            }
            _ => {}
        }
        let request = match Request::parse(head.id, &head.body, argument) {
            Ok(request) => request,
            Err(wrong) => return Step::Refused(stream, head.id, wrong),
        };
        match request {
            Request::Login(_) if self.demands_tls == TlsDemand::Always && !self.is_tls => {
                let what = "this server wants TLS before the login: use roots://";
                Step::Refused(stream, head.id, Malformed::new(ErrorCode::TLS_REQUIRED, what).closing())
            }
            Request::Login(login) => Step::Login(stream, login),
            Request::Auth(auth) => Step::Auth(stream, auth),
            Request::Bind(bind) => Step::Bind(stream, bind),
            request => Step::Request(stream, request),
        }
    }

    fn protocol(&mut self, stream: StreamId, asked: &Protocol) -> Step {
        self.is_for_copies = asked.expect == Expect::TpcLogin;
        let mut flags = ServerFlags::IS_SERVER;
        let mut begins = false;
        // Clients from before 2.9.7 know no other flag.
        if asked.version != 0 {
            flags = flags | ServerFlags::CAN_PAGES | ServerFlags::CAN_POSC;
            let can_tls = asked.flags.has_any(ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS);
            // One that cannot, and reads that it has to, would give up.
            let is_demanded = match self.demands_tls {
                TlsDemand::Never => false,
                TlsDemand::Capable => can_tls || self.is_tls,
                TlsDemand::Always => true,
            };
            // A connection that joins a session says itself whether that is encrypted.
            let is_login = matches!(asked.expect, Expect::Login | Expect::TpcLogin);
            begins = self.has_tls
                && !self.is_tls
                && self.stage == Stage::Introduction
                && (asked.flags.has(ClientFlags::WANTS_TLS) || is_demanded && can_tls && is_login);
            flags = flags
                .with_if(self.has_tls, ServerFlags::HAS_TLS)
                .with_if(is_demanded, ServerFlags::TLS_LOGIN)
                .with_if(begins, ServerFlags::GOTO_TLS);
        }
        let mut body = Vec::new();
        let is_told = asked.version != 0 && asked.flags.has(ClientFlags::WANTS_SIGNING);
        let signing = if is_told { self.signing } else { Signing::default() };
        ProtocolAnswer { version: PROTOCOL_VERSION, flags, signing }.encode(&mut body);
        let said = answer::ok(stream, &body);
        if begins { Step::StartTls(said) } else { Step::Say(said) }
    }
}

/// True if a request brings data for files, in its payload, behind it, or in a request inside of it.
fn brings_data(id: RequestId) -> bool {
    carries_data(id) || matches!(id, RequestId::WRITEV | RequestId::CHKPOINT)
}

#[cfg(test)]
mod tests;
