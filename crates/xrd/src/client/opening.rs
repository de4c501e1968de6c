//! From a new connection to a session.
//!
//! ```text
//! Flight::Whole      handshake · protocol · login · first request                       one write
//! Flight::Login      handshake · protocol · login                ◀ ok ▶  first request
//! Flight::Steps      handshake · protocol ◀▶ [TLS] ◀▶ login ◀▶ [auth] ◀▶ [TLS] ◀▶ first request
//! ```
//!
//! A flight is a guess: a server that wants TLS or credentials cannot go on with what has come behind. Then the
//! connection is of no use, and the next one goes step by step. With `roots` no more than handshake and `protocol` is
//! ever sent in clear; behind TLS the rest is a flight again.

use std::net::SocketAddr;

use gridlane_core::Secret;
use gridlane_core::limits::ROOT_WORDS_BYTES_MAX;

use crate::Malformed;
use crate::answer::{
    AttnAnswer, ErrorAnswer, HANDSHAKE_ANSWER_BYTES, HandshakeAnswer, LoginAnswer, ProtocolAnswer, Signing,
    WaitAnswer,
};
use crate::flags::{Abilities, ClientFlags, ServerFlags};
use crate::frame::{
    HANDSHAKE, PROTOCOL_VERSION, PathId, RESPONSE_HEAD_BYTES, ResponseHead, SessionId, StreamId,
};
use crate::registry::{ErrorCode, Status};
use crate::request::{Auth, Bind, Call, Expect, Login, Protocol};
use crate::ztn;

use super::signing::{Seal, Signer};

/// The name of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginUser {
    /// Its process.
    pub process: u32,
    /// The name that it logs in with; the first 8 bytes count.
    pub login: Vec<u8>,
    /// The user that runs it, for a server that takes its word.
    pub user: Vec<u8>,
    /// And the group.
    pub group: Vec<u8>,
    /// Further facts that it tells: `key=value&…`.
    pub cgi: Vec<u8>,
    /// Its token, for a server that asks for one and where TLS protects it.
    pub token: Option<Secret>,
}

/// The use of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A session of its own.
    Login,
    /// A session of its own, for a file that one server sends to another: a server may want TLS for that.
    TpcLogin,
    /// To join a session.
    Bind(SessionId),
}

/// The bytes that are sent before the server has said anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flight {
    /// Everything.
    Whole,
    /// All but the first request, which must not be lost.
    Login,
    /// The first bytes of the protocol.
    Steps,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Wait for more bytes.
    Receive,
    /// Shake hands as a TLS client. Behind it call [`Opening::secured`].
    StartTls,
    /// Wait so many seconds, then call [`Opening::again`].
    Wait(u32),
    /// The session is there.
    Ready,
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The server wants it step by step.
    StepByStep,
    /// The server has no TLS, and it must be.
    NoTls,
    /// There are no credentials for any of these ways of authentication.
    NoMethod(String),
    /// It wants a token. There is one, which is not sent where others could read it.
    TokenWantsTls,
    /// It wants a token, and takes none of more than so many bytes.
    TokenTooLong(usize),
    /// A way of authentication that the server offers was not gone to its end here, and why; the server has refused none.
    Method(String, String),
    /// The server says why.
    Error(ErrorAnswer),
    /// The bytes that came make no sense.
    Malformed(Malformed),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}

/// Facts about a session and its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The name by which other connections join it.
    pub id: SessionId,
    /// The role and the abilities of the server.
    pub flags: ServerFlags,
    /// The server's version of the protocol.
    pub version: u32,
    /// The number of this connection in the session.
    pub path_id: PathId,
    /// The way of authentication by which the server has let it in; empty where none was asked for.
    pub method: &'static str,
}

impl Session {
    /// True if bytes can travel with a checksum for each page.
    pub fn has_pages(&self) -> bool {
        self.version >= 0x511 && self.flags.has(ServerFlags::CAN_PAGES)
    }

    /// True if the server has taken the token.
    pub fn is_by_token(&self) -> bool {
        self.method.as_bytes() == ztn::NAME
    }

    /// True if it only knows which servers have files.
    pub fn is_manager(&self) -> bool {
        self.flags.has(ServerFlags::IS_MANAGER)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshake,
    Protocol,
    /// TLS in front of login.
    FirstTls,
    Login,
    Auth,
    /// TLS behind login.
    LastTls,
    Ready,
}

/// A way to prove the client's name that takes keys or clocks, which are not here: gsi, sss.
pub trait Method: Send {
    /// Its name, as servers list it.
    fn name(&self) -> &'static [u8];

    /// The client's end of the connection, before anything is sent on it: for credentials that count on no other.
    fn connected(&mut self, _local: SocketAddr) {}

    /// The credentials, which begin with its name and a NUL. `parameters`: what the server says of the method; `is_tls`: TLS
    /// protects what is sent. Fails, in words, when there are none for this server: the next method is tried.
    fn begin(&mut self, parameters: &[u8], is_tls: bool) -> Result<Vec<u8>, String>;

    /// True if nothing is to be said any more: a server that is to prove itself has done so.
    fn is_complete(&self) -> bool {
        true
    }

    /// The answer to a server that asks for more.
    fn more(&mut self, said: &[u8]) -> Result<Vec<u8>, String>;

    /// The key that both ends have agreed on, with which requests are signed, once the server has let the client in.
    fn key(&self) -> Option<Box<dyn Seal>> {
        None
    }
}

/// Opens a session. It has no `Debug`: what is to be sent may have a token in it.
pub struct Opening {
    user: LoginUser,
    aim: Aim,
    flight: Flight,
    /// TLS or failure.
    must_tls: bool,
    is_tls: bool,
    state: State,
    /// To be sent.
    output: Vec<u8>,
    /// The request that the session is opened for; empty when it is sent.
    first: Vec<u8>,
    session: Session,
    /// Ways of authentication that have not been tried, with what the server says of each; the next one last.
    methods: Vec<(Vec<u8>, Vec<u8>)>,
    failure: Option<ErrorAnswer>,
    /// Further ways of authentication that the client has.
    own: Vec<Box<dyn Method>>,
    /// The one of them that is being used.
    current: Option<usize>,
    /// Why one of them was not.
    own_failure: Option<(&'static [u8], String)>,
    /// What the server wants signed.
    signing: Signing,
    signer: Option<Signer>,
}

/// Stream ids: requests of the opening do not meet those that follow.
const PROTOCOL: StreamId = StreamId([0xff, 1]);
const LOGIN: StreamId = StreamId([0xff, 2]);
const AUTH: StreamId = StreamId([0xff, 3]);

impl Opening {
    /// Begins. `first` is the request that follows, as it is sent; it may be empty. `must_tls`: TLS or nothing.
    pub fn new(user: LoginUser, aim: Aim, flight: Flight, must_tls: bool, first: Vec<u8>) -> Opening {
        let mut output = HANDSHAKE.to_vec();
        let expect = match aim {
            Aim::Login => Expect::Login,
            Aim::TpcLogin => Expect::TpcLogin,
            Aim::Bind(_) => Expect::Bind,
        };
        // A server that is told of TLS in a flight would begin it, with the rest of the flight under way.
        let flags = match (must_tls, flight) {
            (true, _) => ClientFlags::CAN_TLS | ClientFlags::WANTS_TLS,
            (false, Flight::Steps) => ClientFlags::CAN_TLS,
            (false, _) => ClientFlags::NONE,
        };
        // A connection that joins a session proves nothing, and has no key to sign with.
        let flags = flags.with_if(!matches!(aim, Aim::Bind(_)), ClientFlags::WANTS_SIGNING);
        let protocol = Protocol { version: PROTOCOL_VERSION, flags, expect };
        protocol.encode(PROTOCOL, &mut output);
        let mut opening = Opening {
            user,
            aim,
            flight,
            must_tls,
            is_tls: false,
            state: State::Handshake,
            output,
            first,
            session: Session::default(),
            methods: Vec::new(),
            failure: None,
            own: Vec::new(),
            current: None,
            own_failure: None,
            signing: Signing::default(),
            signer: None,
        };
        if !must_tls && flight != Flight::Steps {
            opening.log_in();
        }
        opening
    }

    /// With further ways of authentication.
    pub fn with_methods(mut self, methods: Vec<Box<dyn Method>>) -> Opening {
        self.own = methods;
        self
    }

    /// Tells the client's end of the connection.
    pub fn connected(&mut self, local: SocketAddr) {
        self.own.iter_mut().for_each(|method| method.connected(local));
    }

    /// The token that is for a server that asks for one: to be taken out of what it says in turn.
    pub fn token(&self) -> Option<&Secret> {
        self.user.token.as_ref()
    }

    /// The bytes to be sent now; empty if there are none.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Says that TLS is spoken from here on.
    pub fn secured(&mut self) -> Result<Turn, Refused> {
        self.is_tls = true;
        match self.state {
            State::LastTls => self.ready(),
            _ => {
                self.state = State::Login;
                self.log_in();
                Ok(Turn::Receive)
            }
        }
    }

    /// True if what comes next may take milliseconds of a processor: a way of authentication by certificates.
    pub fn is_laborious(&self) -> bool {
        !self.own.is_empty() && matches!(self.state, State::Login | State::Auth)
    }

    /// What signs the requests that follow the first one, in their order, when the session is there; `None` where nothing is signed.
    pub fn signer(&mut self) -> Option<Signer> {
        self.signer.take()
    }

    /// Logs in again, as the server has asked for with [`Turn::Wait`].
    pub fn again(&mut self) {
        self.log_in();
    }

    /// The facts about the session, when it is there.
    pub fn session(&self) -> Session {
        self.session
    }

    /// Looks at bytes: what to do next, and how many of them were used. They are to be given again, with more behind
    /// them, as long as they are not used.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(Turn, usize), Refused> {
        let mut used = 0;
        while !matches!(self.state, State::FirstTls | State::LastTls | State::Ready) {
            if self.state == State::Handshake && !begins_as_answer(&bytes[used..]) {
                // What more would it have to say? Something else is spoken there.
                return Err(match &bytes[used..] {
                    http if http.starts_with(HTTP) => {
                        "it answers in HTTP; another port, or a URL with http:// or https://, may be meant"
                    }
                    begun if HTTP.starts_with(begun) => break,
                    _ => "it does not answer the handshake as XRootD's servers do",
                })
                .map_err(|what| wrong(what).into());
            }
            let Some((head, body, count)) = message(&bytes[used..])? else { break };
            used += count;
            let turn = self.hear(head, body)?;
            if turn != Turn::Receive {
                return Ok((turn, used));
            }
        }
        Ok((Turn::Receive, used))
    }

    fn hear(&mut self, head: ResponseHead, body: &[u8]) -> Result<Turn, Refused> {
        if head.status == Status::ATTN {
            return match AttnAnswer::parse(body)? {
                AttnAnswer::Response(head, body) if head.status != Status::ATTN => self.hear(head, &body),
                _ => Ok(Turn::Receive),
            };
        }
        let expected = match self.state {
            State::Handshake => StreamId::default(),
            State::Protocol => PROTOCOL,
            State::Auth => AUTH,
            _ => LOGIN,
        };
        if head.stream != expected {
            return Err(wrong("an answer to no request").into());
        }
        match head.status {
            Status::OK => {}
            Status::ERROR => return self.failed(ErrorAnswer::parse(body)?),
            Status::WAITRESP if self.state != State::Handshake => return Ok(Turn::Receive),
            // What has come behind the login has been refused by now.
            Status::WAIT if self.state == State::Login && self.flight == Flight::Whole => {
                return Err(Refused::StepByStep);
            }
            Status::WAIT if self.state == State::Login => {
                return Ok(Turn::Wait(WaitAnswer::parse(body)?.seconds));
            }
            Status::AUTHMORE if self.state == State::Auth => return self.more(body),
            _ => return Err(wrong("an answer of a kind that makes no sense here").into()),
        }
        match self.state {
            State::Handshake => {
                HandshakeAnswer::parse(body)?;
                self.state = State::Protocol;
                Ok(Turn::Receive)
            }
            State::Protocol => self.protocol(ProtocolAnswer::parse(body)?),
            State::Auth => match self
                .current
                .and_then(|at| self.own.get(at))
                .filter(|method| !method.is_complete())
            {
                // It may be anybody: it was to prove itself as well.
                Some(method) => {
                    let name = String::from_utf8_lossy(method.name()).into_owned();
                    Err(Refused::Method(name, "the server lets us in before it has proved itself".to_owned()))
                }
                None => self.logged_in(),
            },
            _ => match self.aim {
                Aim::Bind(_) => {
                    let path_id = body.first().filter(|number| **number > 0);
                    self.session.path_id = PathId(*path_id.ok_or(wrong("a connection without a number"))?);
                    self.ready()
                }
                Aim::Login | Aim::TpcLogin => {
                    let login = LoginAnswer::parse(body)?;
                    self.session.id = login.session;
                    let list = login.method_list();
                    self.methods = list.map(|(name, more)| (name.to_vec(), more.to_vec())).collect();
                    match login.methods.is_empty() {
                        true => self.logged_in(),
                        // What has come behind the login has been refused by now, and the connection with it.
                        false if self.flight == Flight::Whole => Err(Refused::StepByStep),
                        // The server was not told of TLS, behind which it may take better proof.
                        false if self.flight == Flight::Login && self.may_get_tls() => {
                            Err(Refused::StepByStep)
                        }
                        false => {
                            self.methods.reverse();
                            self.authenticate()
                        }
                    }
                }
            },
        }
    }

    fn protocol(&mut self, answer: ProtocolAnswer) -> Result<Turn, Refused> {
        (self.session.flags, self.session.version) = (answer.flags, answer.version);
        self.signing = answer.signing;
        let begins = answer.flags.has_any(ServerFlags::GOTO_TLS)
            || answer.flags.has(ServerFlags::HAS_TLS) && answer.flags.has_any(self.tls_demand());
        if begins && !self.must_tls && self.flight != Flight::Steps {
            return Err(Refused::StepByStep);
        }
        if begins {
            self.state = State::FirstTls;
            return Ok(Turn::StartTls);
        }
        if self.must_tls {
            return Err(Refused::NoTls);
        }
        let ends_in_tls = !matches!(self.aim, Aim::Bind(_)) && answer.flags.has(ServerFlags::TLS_SESSION);
        if ends_in_tls && self.flight == Flight::Whole {
            return Err(Refused::StepByStep);
        }
        self.state = State::Login;
        if self.flight == Flight::Steps {
            self.log_in();
        }
        Ok(Turn::Receive)
    }

    /// The flags of a server of which any says that TLS comes first.
    fn tls_demand(&self) -> ServerFlags {
        match self.aim {
            Aim::Login => ServerFlags::TLS_LOGIN,
            Aim::TpcLogin => ServerFlags::TLS_LOGIN | ServerFlags::TLS_TPC,
            Aim::Bind(_) => ServerFlags::TLS_DATA,
        }
    }

    /// True if a server that is told that we can do TLS might begin it.
    fn may_get_tls(&self) -> bool {
        !self.is_tls && self.session.flags.has(ServerFlags::HAS_TLS)
    }

    fn log_in(&mut self) {
        match &self.aim {
            Aim::Bind(session) => Bind { session: *session }.encode(LOGIN, &mut self.output),
            Aim::Login | Aim::TpcLogin => {
                let abilities = Abilities::MULTI_PROTOCOL | Abilities::READ_REDIRECT | Abilities::DUAL_STACK;
                let login = Login::new(self.user.process, &self.user.login, abilities, self.user.cgi.clone());
                login.encode(LOGIN, &mut self.output);
            }
        }
        if self.flight == Flight::Whole {
            self.output.append(&mut self.first);
        }
    }

    fn authenticate(&mut self) -> Result<Turn, Refused> {
        self.state = State::Auth;
        self.current = None;
        let names: Vec<_> =
            self.methods.iter().rev().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let names = names.join(", ");
        let mut no_token = None;
        while let Some((kind, more)) = self.methods.pop() {
            let (name, credentials) = match (kind.as_slice(), &self.user.token) {
                (b"host", _) => ("host", b"host\0".to_vec()),
                (b"unix", _) => {
                    ("unix", [b"unix\0", self.user.user.as_slice(), b" ", &self.user.group, b"\0"].concat())
                }
                (ztn::NAME, Some(_)) if !self.is_tls => {
                    no_token = Some(Refused::TokenWantsTls);
                    continue;
                }
                (ztn::NAME, Some(token)) => {
                    let max =
                        ztn::bytes_max(&more).unwrap_or(ztn::ENCODED_BYTES_MAX).min(ztn::ENCODED_BYTES_MAX);
                    if token.expose().len() > max {
                        no_token = Some(Refused::TokenTooLong(max));
                        continue;
                    }
                    ("ztn", ztn::encode(token))
                }
                _ => {
                    let Some(at) = self.own.iter().position(|method| method.name() == kind) else { continue };
                    match self.own[at].begin(&more, self.is_tls) {
                        Ok(credentials) => {
                            self.current = Some(at);
                            (std::str::from_utf8(self.own[at].name()).unwrap_or_default(), credentials)
                        }
                        Err(why) => {
                            self.own_failure = Some((self.own[at].name(), why));
                            continue;
                        }
                    }
                }
            };
            self.session.method = name;
            Auth { kind, credentials }.encode(AUTH, &mut self.output);
            return Ok(Turn::Receive);
        }
        Err(match self.failure.take() {
            Some(failure) => Refused::Error(failure),
            None if self.own_failure.is_some() => {
                let (name, why) = self.own_failure.take().unwrap_or_default();
                Refused::Method(String::from_utf8_lossy(name).into_owned(), why)
            }
            None => no_token.unwrap_or(Refused::NoMethod(names)),
        })
    }

    /// Goes on with a method of several rounds; with the next one where there is nothing to say.
    fn more(&mut self, said: &[u8]) -> Result<Turn, Refused> {
        let Some(method) = self.current.and_then(|at| self.own.get_mut(at)) else {
            return self.authenticate();
        };
        match method.more(said) {
            Ok(credentials) => {
                let kind = method.name().to_vec();
                Auth { kind, credentials }.encode(AUTH, &mut self.output);
                Ok(Turn::Receive)
            }
            Err(why) => {
                self.own_failure = Some((method.name(), why));
                self.authenticate()
            }
        }
    }

    fn failed(&mut self, error: ErrorAnswer) -> Result<Turn, Refused> {
        match self.state {
            State::Auth => {
                self.failure = Some(error);
                self.authenticate()
            }
            State::Login if error.code == ErrorCode::TLS_REQUIRED && self.flight != Flight::Steps => {
                Err(Refused::StepByStep)
            }
            _ => Err(Refused::Error(error)),
        }
    }

    fn logged_in(&mut self) -> Result<Turn, Refused> {
        // Nothing is signed where nobody has proved anything.
        if !self.session.method.is_empty() {
            let key = self.current.and_then(|at| self.own[at].key());
            self.signer = Signer::new(self.signing, key);
        }
        if !self.is_tls && self.session.flags.has(ServerFlags::TLS_SESSION) {
            self.state = State::LastTls;
            return Ok(Turn::StartTls);
        }
        self.ready()
    }

    fn ready(&mut self) -> Result<Turn, Refused> {
        self.state = State::Ready;
        let first = std::mem::take(&mut self.first);
        match &mut self.signer {
            Some(signer) => signer
                .sign_all(&first, &mut self.output)
                .map_err(|why| Refused::Method(self.session.method.to_owned(), why))?,
            None => self.output.extend_from_slice(&first),
        }
        Ok(Turn::Ready)
    }
}

/// True if these can be the first bytes of the answer to the handshake, as far as they have come.
fn begins_as_answer(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk() else { return true };
    ResponseHead::parse(head).is_ok_and(|head| {
        let is_answer = head.status == Status::OK && head.len as usize == HANDSHAKE_ANSWER_BYTES;
        head.stream == StreamId::default() && (is_answer || head.status == Status::ERROR)
    })
}

/// A message, and how long it is with its head.
type Message<'a> = (ResponseHead, &'a [u8], usize);

/// The first bytes of servers of HTTP.
const HTTP: &[u8] = b"HTTP/";

/// The first message of `bytes`; `None` when it is not whole.
fn message(bytes: &[u8]) -> Result<Option<Message<'_>>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<RESPONSE_HEAD_BYTES>() else { return Ok(None) };
    let head = ResponseHead::parse(head)?;
    let len = head.len as usize;
    if len > ROOT_WORDS_BYTES_MAX {
        return Err(wrong("what a session begins with is too long"));
    }
    Ok(rest.get(..len).map(|body| (head, body, RESPONSE_HEAD_BYTES + len)))
}

fn wrong(what: &'static str) -> Malformed {
    Malformed::new(ErrorCode::INVALID_REQUEST, what).closing()
}
