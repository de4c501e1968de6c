//! Questions to a server that answers as told.

use std::sync::{Arc, Mutex};

use gridlane_dav::listing::EntryKind;
use gridlane_net::tls::Trust;
use gridlane_peer::Client as AnyClient;
use gridlane_xrd::answer::{HandshakeAnswer, LoginAnswer, ProtocolAnswer, Signing, error, message, ok};
use gridlane_xrd::flags::{DirlistOptions, ServerFlags};
use gridlane_xrd::frame::{HANDSHAKE_BYTES, PROTOCOL_VERSION, REQUEST_HEAD_BYTES};
use gridlane_xrd::{ErrorCode, Request, RequestHead, RequestId, SessionId, Status, StreamId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::item::Item;
use crate::listing::Lister;

type Answer = dyn FnMut(StreamId, &Request) -> Option<Vec<Vec<u8>>> + Send;

pub(crate) struct Server {
    pub(crate) url: Url,
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// A server that answers so, in pieces; what is not answered is not found.
    pub(crate) async fn start(
        answer: impl FnMut(StreamId, &Request) -> Option<Vec<Vec<u8>>> + Send + 'static,
    ) -> Server {
        Server::with(ServerFlags::IS_SERVER, answer).await
    }

    /// The same that says to be and to can this.
    pub(crate) async fn with(
        flags: ServerFlags,
        answer: impl FnMut(StreamId, &Request) -> Option<Vec<Vec<u8>>> + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("root://{}//d", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
        let server = Server { url: Url::parse_absolute(&url).unwrap(), asked: asked.clone() };
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer) = (asked.clone(), answer.clone());
                tokio::spawn(async move {
                    // Ends with the connection.
                    let _ = serve(stream, flags, &asked, &answer).await;
                });
            }
        });
        server
    }

    pub(crate) fn client(&self) -> AnyClient {
        crate::connect(Trust::default())
    }

    fn below(&self, name: &str) -> Url {
        crate::item::directory_form(&self.url).unwrap().join(name).unwrap()
    }

    pub(crate) fn asked(&self, id: RequestId) -> usize {
        self.asked.lock().unwrap().iter().filter(|request| request.id() == id).count()
    }
}

async fn serve(
    mut stream: TcpStream,
    flags: ServerFlags,
    asked: &Mutex<Vec<Request>>,
    answer: &Mutex<Answer>,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; HANDSHAKE_BYTES]).await?;
    let mut hello = Vec::new();
    HandshakeAnswer { version: PROTOCOL_VERSION, is_manager: false }.encode(&mut hello);
    stream.write_all(&hello).await?;
    loop {
        let mut head = [0; REQUEST_HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let head = RequestHead::parse(&head).unwrap();
        let mut data = vec![0; head.payload_len as usize];
        stream.read_exact(&mut data).await?;
        let request = Request::parse(head.id, &head.body, &data).unwrap();
        asked.lock().unwrap().push(request.clone());
        let mut body = Vec::new();
        let pieces = match &request {
            Request::Protocol(_) => {
                let (version, signing) = (PROTOCOL_VERSION, Signing::default());
                ProtocolAnswer { version, flags, signing }.encode(&mut body);
                vec![ok(head.stream, &body)]
            }
            Request::Login(_) => {
                LoginAnswer { session: SessionId([7; 16]), methods: Vec::new() }.encode(&mut body);
                vec![ok(head.stream, &body)]
            }
            other => {
                let told = answer.lock().unwrap()(head.stream, other);
                told.unwrap_or_else(|| vec![error(head.stream, ErrorCode::NOT_FOUND, "nothing")])
            }
        };
        for piece in pieces {
            stream.write_all(&piece).await?;
            tokio::task::yield_now().await;
        }
    }
}

/// The path that a request is about.
fn path(request: &Request) -> String {
    let about = match request {
        Request::Stat(Stat { about: About::Path(about), .. }) => about,
        Request::Dirlist(dirlist) => &dirlist.about,
        Request::Rm(rm) => &rm.about,
        Request::Rmdir(rmdir) => &rmdir.about,
        Request::Mkdir(mkdir) => &mkdir.about,
        Request::Mv(mv) => &mv.from,
        _ => return String::new(),
    };
    String::from_utf8(about.path.clone()).unwrap()
}

const FILE: &[u8] = b"1 5 48 100\0";
const DIRECTORY: &[u8] = b"1 4096 51 100\0";

fn one(bytes: Vec<u8>) -> Option<Vec<Vec<u8>>> {
    Some(vec![bytes])
}

async fn names(client: &AnyClient, url: &Url) -> Result<Vec<String>> {
    let mut listing = Lister::new(client.clone()).list(url).await?;
    let mut items = Vec::new();
    while listing.next(&mut items).await? {}
    Ok(items
        .into_iter()
        .map(|item| match item {
            Item::Entry(entry) => {
                let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
                String::from_utf8(entry.name).unwrap() + slash
            }
            Item::Odd { name, .. } => String::from_utf8(name).unwrap() + "?",
            Item::Itself(entry) => String::from_utf8(entry.name).unwrap() + "!",
        })
        .collect())
}

#[test]
fn slashes_at_the_end() {
    let about = PathArg::with_cgi("/a b//", "authz=x");
    assert_eq!(without_slash(about), PathArg::with_cgi("/a b", "authz=x"));
    assert_eq!(without_slash(PathArg::new("//")), PathArg::new("/"));
}

#[test]
fn what_a_stat_text_says() {
    let text = |text: &str| StatText::parse(text.as_bytes()).unwrap();
    let file = entry(b"f".to_vec(), &text("1 5 48 100"));
    assert_eq!((file.kind, file.size_bytes), (EntryKind::File, Some(5)));
    assert_eq!(file.modified, Some(UNIX_EPOCH + Duration::from_secs(100)));
    let directory = entry(b"d".to_vec(), &text("1 4096 51 -1"));
    assert_eq!(
        (directory.kind, directory.size_bytes, directory.modified),
        (EntryKind::Directory, None, None)
    );
    assert_eq!(entry(b"f".to_vec(), &text("1 5 112 100")).size_bytes, None);
    assert!(is_special(&text("1 0 4 0")) && !is_special(&text("1 0 48 0")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_may_be_cut_anywhere() {
    let text = b".\n0 0 0 0\nb c\n1 100 48 5\nd\n2 0 51 5\n../x\n2 0 48 5\ne/f\n2 0 48 5\npipe\n3 0 4 5\0";
    for cut in 0..text.len() {
        let server = Server::start(move |stream, request| {
            let Request::Dirlist(dirlist) = request else { return None };
            assert_eq!((dirlist.about.path.as_slice(), dirlist.options), (&b"/d"[..], DirlistOptions::STAT));
            let (first, rest) = text.split_at(cut);
            let mut answer = message(stream, Status::OKSOFAR, first);
            answer.extend(ok(stream, rest));
            // And the stream of bytes elsewhere.
            let (one, two) = answer.split_at(answer.len() * 2 / 3);
            Some(vec![one.to_vec(), two.to_vec()])
        })
        .await;
        // Names that lead elsewhere are none.
        assert_eq!(names(&server.client(), &server.url).await.unwrap(), ["b c", "d/", "pipe?"], "{cut}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_listing_waits_for_whoever_takes_it() {
    const COUNT: usize = 20_000;
    let server = Server::start(|stream, request| {
        let Request::Dirlist(_) = request else { return None };
        let mut parts = vec![message(stream, Status::OKSOFAR, b".\n0 0 0 0\n")];
        let line = |number: usize| format!("file {number}\n1 100 48 5\n");
        for first in (0..COUNT).step_by(100) {
            let text: String = (first..first + 100).map(line).collect();
            parts.push(message(stream, Status::OKSOFAR, text.as_bytes()));
        }
        parts.push(ok(stream, b""));
        Some(parts)
    })
    .await;
    let client = server.client();
    assert_eq!(names(&client, &server.url).await.unwrap().len(), COUNT);
    // The rest is not wanted: that is no failure, and the next question goes on.
    let mut listing = Lister::new(client.clone()).list(&server.url).await.unwrap();
    listing.next(&mut Vec::new()).await.unwrap();
    drop(listing);
    assert_eq!(names(&client, &server.url).await.unwrap().len(), COUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_without_more_are_looked_at() {
    let server = Server::start(|stream, request| match (request, path(request).as_str()) {
        (Request::Dirlist(_), _) => one(ok(stream, b"a%20\ngone\nsub\0")),
        (Request::Stat(_), "/d/a%20") => one(ok(stream, FILE)),
        (Request::Stat(_), "/d/sub") => one(ok(stream, DIRECTORY)),
        _ => None,
    })
    .await;
    assert_eq!(names(&server.client(), &server.url).await.unwrap(), ["a%20", "sub/"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_breaks_off_is_none() {
    let server = Server::start(|stream, request| {
        let Request::Dirlist(_) = request else { return None };
        Some(vec![
            message(stream, Status::OKSOFAR, b".\n0 0 0 0\na\n1 100 48 5\n"),
            error(stream, ErrorCode::IO_ERROR, "bad disk"),
        ])
    })
    .await;
    let failed = names(&server.client(), &server.url).await.unwrap_err();
    assert!(failed.message().contains("bad disk"), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_lists_itself() {
    for code in [ErrorCode::FS_ERROR, ErrorCode::NOT_FILE, ErrorCode::ARG_INVALID] {
        let server = Server::start(move |stream, request| match request {
            Request::Dirlist(_) => one(error(stream, code, "Unable to open directory /d; not a directory")),
            Request::Stat(_) => one(ok(stream, FILE)),
            _ => None,
        })
        .await;
        assert_eq!(names(&server.client(), &server.url).await.unwrap(), ["d!"]);
    }
}

#[tokio::test]
async fn nothing_is_replaced_unasked() {
    let server = Server::start(|stream, request| match (request, path(request).as_str()) {
        (Request::Stat(_), "/d" | "/d/f") => one(ok(stream, FILE)),
        (Request::Mv(_), _) => one(ok(stream, b"")),
        _ => None,
    })
    .await;
    let client = server.client();
    let (from, to) = (server.below("g"), server.below("f"));
    let failed = crate::rename(&client, &from, &to, false).await.unwrap_err();
    assert_eq!((failed.kind(), server.asked(RequestId::MV)), (ErrorKind::Precondition, 0));
    crate::rename(&client, &from, &to, true).await.unwrap();
    crate::rename(&client, &from, &server.below("new%20name"), false).await.unwrap();
    assert_eq!(server.asked(RequestId::MV), 2);
    let asked = server.asked.lock().unwrap();
    let Some(Request::Mv(mv)) = asked.last() else { panic!("{asked:?}") };
    assert_eq!((mv.from.path.as_slice(), mv.to.path.as_slice()), (&b"/d/g"[..], &b"/d/new name"[..]));
}

#[tokio::test]
async fn a_directory_is_not_removed_as_a_file_and_a_link_not_as_a_directory() {
    let server = Server::start(|stream, request| match (request, path(request).as_str()) {
        (Request::Stat(_), _) => one(ok(stream, DIRECTORY)),
        (Request::Rmdir(_), "/d/link") => {
            one(error(stream, ErrorCode::FS_ERROR, "Unable to remove /d/link; not a directory"))
        }
        (Request::Rm(_) | Request::Rmdir(_), _) => one(ok(stream, b"")),
        _ => None,
    })
    .await;
    let client = server.client();
    let failed = crate::remove(&client, &server.url).await.unwrap_err();
    assert_eq!((failed.kind(), server.asked(RequestId::RM)), (ErrorKind::Usage, 0));
    crate::remove_tree(&client, &server.below("link")).await.unwrap();
    assert_eq!((server.asked(RequestId::RM), server.asked(RequestId::DIRLIST)), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_removed_leaf_by_leaf() {
    let mut left = vec!["/d/sub/f", "/d/sub", "/d"];
    let server = Server::start(move |stream, request| match (request, path(request).as_str()) {
        (Request::Stat(_), _) => one(ok(stream, DIRECTORY)),
        (Request::Dirlist(_), "/d") => one(ok(stream, b".\n0 0 0 0\nsub\n1 0 51 5\0")),
        (Request::Dirlist(_), "/d/sub") => one(ok(stream, b".\n0 0 0 0\nf\n1 0 48 5\0")),
        (Request::Rm(_) | Request::Rmdir(_), path) if left.first() == Some(&path) => {
            left.remove(0);
            one(ok(stream, b""))
        }
        (Request::Rmdir(_), _) => one(error(stream, ErrorCode::ITEM_EXISTS, "directory not empty")),
        _ => None,
    })
    .await;
    crate::remove_tree(&server.client(), &server.url).await.unwrap();
    assert_eq!(server.asked(RequestId::RM), 1);
}

#[tokio::test]
async fn a_question_mark_is_in_no_name() {
    let server = Server::start(|stream, _| one(ok(stream, b""))).await;
    let client = server.client();
    let odd = server.below("a%3Fb");
    for failed in [
        crate::make_directory(&client, &odd, true).await.unwrap_err(),
        crate::stat(&client, &odd).await.unwrap_err(),
        mv(&client.root, &server.url, &odd).await.unwrap_err(),
    ] {
        assert_eq!((failed.kind(), failed.whose_fault()), (ErrorKind::Unsupported, Fault::Caller));
    }
    assert!(server.asked.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_where_no_directory_is_blames_the_new_name() {
    let server = Server::start(|stream, request| match (request, path(request).as_str()) {
        (Request::Mv(_), _) => one(error(stream, ErrorCode::NOT_FOUND, "no such file or directory")),
        (Request::Stat(_), "/d/here") => one(ok(stream, FILE)),
        (Request::Stat(_), _) => one(error(stream, ErrorCode::NOT_FOUND, "no such file or directory")),
        _ => None,
    })
    .await;
    let client = server.client();
    let to = server.below("no/there");
    let failed = mv(&client.root, &server.below("here"), &to).await.unwrap_err();
    assert_eq!(
        (failed.kind(), failed.endpoint_text()),
        (ErrorKind::Precondition, Some(to.to_string().as_str()))
    );
    let failed = mv(&client.root, &server.below("gone"), &to).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_is_asked_who_has_the_directory() {
    let node = |text: &'static [u8]| {
        Server::start(move |stream, request| match request {
            Request::Dirlist(_) => one(ok(stream, text)),
            _ => None,
        })
    };
    let one_node = node(b".\n0 0 0 0\na\n1 5 48 5\nboth\n1 5 48 5\0").await;
    let other = node(b".\n0 0 0 0\nboth\n1 5 48 5\nz\n1 5 48 5\0").await;
    let address = |server: &Server| format!("Sw[::127.0.0.1]:{}", server.url.port());
    let locations = format!("{} {}\0", address(&one_node), address(&other));
    let manager = Server::with(ServerFlags::IS_MANAGER, move |stream, request| match request {
        Request::Ping(_) => one(ok(stream, b"")),
        Request::Locate(_) => one(ok(stream, locations.as_bytes())),
        // Its own disk has nothing.
        _ => None,
    })
    .await;
    let mut found = names(&manager.client(), &manager.url).await.unwrap();
    found.sort();
    assert_eq!(found, ["a", "both", "z"]);
}
