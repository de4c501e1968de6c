//! A client that does nothing but ask: what `make bench-root` measures servers with.
//!
//! ```text
//! root_load HOST:PORT PATH reads COUNT             1 kB at random places, one after the other
//! root_load HOST:PORT PATH random CLIENTS COUNT    1 MB at random places, COUNT for each of CLIENTS connections
//! root_load HOST:PORT PATH readv COUNT             vectors of 1024 x 1 kB, a few ahead
//! root_load HOST:PORT PATH stat COUNT              many ahead
//! root_load HOST:PORT PATH dirlist COUNT           with what is known of each entry
//! ```
//!
//! Answers are counted and thrown away. It looks at no checksum, so that its own cost is small and the same whatever
//! server answers.

use std::error::Error;
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use gridlane_xrd::answer::{ErrorAnswer, OpenAnswer};
use gridlane_xrd::flags::{Abilities, ClientFlags, DirlistOptions, OpenMore, OpenOptions};
use gridlane_xrd::frame::{HANDSHAKE, PROTOCOL_VERSION};
use gridlane_xrd::request::{About, Dirlist, Expect, Login, Open, Protocol, Read, ReadV, Segment, Stat};
use gridlane_xrd::{Call, Handle, PathArg, PathId, ResponseHead, Status, StreamId};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SMALL_BYTES: u32 = 1024;
const LARGE_BYTES: u32 = 1024 * 1024;
const VECTORS_AHEAD: usize = 4;
const STATS_AHEAD: usize = 64;

/// Mixed into every place that is read: other runs read the same places.
static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [server, path, "reads", count] => reads(server, path, count.parse()?),
        [server, path, "random", clients, count] => random(server, path, clients.parse()?, count.parse()?),
        [server, path, "readv", count] => vectors(server, path, count.parse()?),
        [server, path, "stat", count] => stats(server, path, count.parse()?),
        [server, path, "dirlist", count] => listings(server, path, count.parse()?),
        _ => Err("usage: root_load HOST:PORT PATH reads|random|readv|stat|dirlist COUNT…".into()),
    }
}

/// A logged-in connection.
struct Session {
    stream: TcpStream,
    input: BufReader<TcpStream>,
    scratch: Vec<u8>,
}

impl Session {
    fn connect(server: &str) -> Outcome<Session> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let mut input = BufReader::with_capacity(256 * 1024, stream.try_clone()?);
        let mut begin = HANDSHAKE.to_vec();
        let flags = ClientFlags::NONE;
        Protocol { version: PROTOCOL_VERSION, flags, expect: Expect::Login }
            .encode(StreamId([0, 1]), &mut begin);
        Login::new(1, b"load", Abilities::NONE, Vec::new()).encode(StreamId([0, 2]), &mut begin);
        (&stream).write_all(&begin)?;
        let mut head = [0; 16];
        input.read_exact(&mut head)?;
        let mut session = Session { stream, input, scratch: vec![0; 256 * 1024] };
        for _ in 0..2 {
            session.answer()?;
        }
        Ok(session)
    }

    /// The last part of the next answer, when it is small; the length of all parts.
    fn answer(&mut self) -> Outcome<(Vec<u8>, u64)> {
        let mut total = 0;
        loop {
            let mut head = [0; 8];
            self.input.read_exact(&mut head)?;
            let head = ResponseHead::parse(&head).map_err(|wrong| wrong.message)?;
            total += u64::from(head.len);
            match head.status {
                Status::OK | Status::OKSOFAR if head.len > 4096 => {
                    self.skip(head.len as usize)?;
                    if head.status == Status::OK {
                        return Ok((Vec::new(), total));
                    }
                }
                Status::OK | Status::OKSOFAR | Status::ERROR => {
                    let mut body = vec![0; head.len as usize];
                    self.input.read_exact(&mut body)?;
                    match head.status {
                        Status::OK => return Ok((body, total)),
                        Status::ERROR => {
                            let error = ErrorAnswer::parse(&body).map_err(|wrong| wrong.message)?;
                            return Err(error.text.into());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("an answer of status {other}").into()),
            }
        }
    }

    fn skip(&mut self, mut len: usize) -> io::Result<()> {
        while len > 0 {
            let room = len.min(self.scratch.len());
            let count = self.input.read(&mut self.scratch[..room])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            len -= count;
        }
        Ok(())
    }

    fn send(&mut self, call: &impl Call) -> io::Result<()> {
        self.stream.write_all(&call.to_bytes(StreamId([1, 0])))
    }

    /// Opens a file; its handle and its size.
    fn open(&mut self, path: &str) -> Outcome<(Handle, u64)> {
        let options = OpenOptions::READ | OpenOptions::RETSTAT;
        let about = PathArg::new(path);
        self.send(&Open { mode: 0, options, more: OpenMore::NONE, template: Handle::default(), about })?;
        let (body, _) = self.answer()?;
        let opened = OpenAnswer::parse(&body).map_err(|wrong| wrong.message)?;
        let stat = opened.stat.ok_or("the server does not say how large the file is")?;
        Ok((opened.handle, stat.size_bytes))
    }

    /// Asks `count` times, `ahead` of the answers; each has to have so many bytes, if that is known.
    fn pipeline(
        &mut self,
        count: usize,
        ahead: usize,
        bytes: Option<u64>,
        mut next: impl FnMut(&mut Vec<u8>),
    ) -> Outcome<()> {
        let mut asked = 0;
        let mut out = Vec::new();
        for answered in 0..count {
            // Half of those that may be under way are asked for at once.
            if asked < count && asked - answered <= ahead / 2 {
                out.clear();
                while asked < count && asked - answered < ahead {
                    next(&mut out);
                    asked += 1;
                }
                self.stream.write_all(&out)?;
            }
            let (_, came) = self.answer()?;
            if bytes.is_some_and(|bytes| bytes != came) {
                return Err(format!("an answer of {came} bytes").into());
            }
        }
        Ok(())
    }
}

/// A place to read `len` bytes from.
fn place(size: u64, len: u32) -> u64 {
    // Xorshift (Marsaglia 2003): the places are to be anywhere, no more.
    let mut state = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    state % (size - u64::from(len) + 1)
}

fn reads(server: &str, path: &str, count: usize) -> Outcome<()> {
    let mut session = Session::connect(server)?;
    let (handle, size) = session.open(path)?;
    session.pipeline(count, 1, Some(SMALL_BYTES.into()), |out| {
        let offset = place(size, SMALL_BYTES);
        Read { handle, offset, len: SMALL_BYTES, path_id: PathId::MAIN }.encode(StreamId([1, 0]), out);
    })
}

fn random(server: &str, path: &str, clients: usize, count: usize) -> Outcome<()> {
    let client = || -> Outcome<()> {
        let mut session = Session::connect(server)?;
        let (handle, size) = session.open(path)?;
        session.pipeline(count, 1, None, |out| {
            let offset = place(size, LARGE_BYTES);
            Read { handle, offset, len: LARGE_BYTES, path_id: PathId::MAIN }.encode(StreamId([1, 0]), out);
        })
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        running.into_iter().try_for_each(|one| one.join().map_err(|_| "a client panicked")?)
    })
}

fn vectors(server: &str, path: &str, count: usize) -> Outcome<()> {
    let mut session = Session::connect(server)?;
    let (handle, size) = session.open(path)?;
    let bytes = 1024 * (16 + u64::from(SMALL_BYTES));
    session.pipeline(count, VECTORS_AHEAD, Some(bytes), |out| {
        let segment = |_| Segment { handle, len: SMALL_BYTES, offset: place(size, SMALL_BYTES) };
        let segments = (0..1024).map(segment).collect();
        ReadV { path_id: PathId::MAIN, segments }.encode(StreamId([1, 0]), out);
    })
}

fn stats(server: &str, path: &str, count: usize) -> Outcome<()> {
    let mut session = Session::connect(server)?;
    let stat = Stat { about: About::Path(PathArg::new(path)), is_vfs: false, wants: 0 };
    session.pipeline(count, STATS_AHEAD, None, |out| stat.encode(StreamId([1, 0]), out))
}

fn listings(server: &str, path: &str, count: usize) -> Outcome<()> {
    let mut session = Session::connect(server)?;
    let list = Dirlist { about: PathArg::new(path), options: DirlistOptions::STAT };
    session.pipeline(count, 1, None, |out| list.encode(StreamId([1, 0]), out))
}
