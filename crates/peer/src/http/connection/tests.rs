//! Bodies that servers take slowly, not at all, or do not want.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::*;

const PIECE_BYTES: usize = 256 * 1024;
/// Beyond everything that kernels keep on the way.
const LARGE_BYTES: usize = 48 * 1024 * 1024;
/// Longer than any test needs.
const LONG: Duration = Duration::from_secs(300);

/// A connection that has sent the head of a PUT, and the server's end of it, which has read that.
async fn pair(body_bytes: usize) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let socket = TcpStream::connect(at).await.unwrap();
    let mut server = listener.accept().await.unwrap().0;
    let mut connection = Connection::new(Stream::plain(socket).unwrap());
    let url = Url::parse_absolute(&format!("http://{at}/f")).unwrap();
    let put = Request::new("PUT", &url).header("Content-Length", body_bytes.to_string());
    connection.send(&put).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(server.read_u8().await.unwrap());
    }
    (connection, server)
}

#[tokio::test]
async fn a_server_that_takes_a_little_now_and_then_is_waited_for() {
    let (mut connection, mut server) = pair(LARGE_BYTES).await;
    let taking = tokio::spawn(async move {
        let mut taken = 0;
        let mut step = vec![0; 2 * 1024 * 1024];
        while taken < LARGE_BYTES {
            let count = step.len().min(LARGE_BYTES - taken);
            taken += server.read_exact(&mut step[..count]).await.unwrap();
            sleep(Duration::from_millis(250)).await;
        }
    });
    let began = Instant::now();
    let stall_max = Duration::from_secs(3);
    let body = vec![7; LARGE_BYTES];
    assert_eq!(connection.write_body(&body, stall_max).await.unwrap(), Sent::All);
    assert!(began.elapsed() > stall_max, "nothing was tried");
    taking.await.unwrap();
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_given_up() {
    let (mut connection, server) = pair(LARGE_BYTES).await;
    let body = vec![7; LARGE_BYTES];
    let sent = timeout(LONG, connection.write_body(&body, Duration::from_millis(500))).await.unwrap();
    let error = sent.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("takes no bytes any more, for 0.5 s"), "{error}");
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_talks_without_end_and_takes_nothing_is_given_up() {
    let (mut connection, mut server) = pair(LARGE_BYTES).await;
    let talking = tokio::spawn(async move {
        let interim = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(10_000);
        while server.write_all(&interim).await.is_ok() {}
    });
    let body = vec![7; LARGE_BYTES];
    let sent =
        timeout(LONG, connection.write_body(&body, Duration::from_millis(500))).await.expect("it ends");
    // As answered if it talks faster than it can be listened to.
    assert!(sent.map_or_else(|error| error.kind() == ErrorKind::Timeout, |sent| sent == Sent::Answered));
    drop(connection);
    talking.await.unwrap();
}

#[tokio::test]
async fn a_refusal_ends_the_body_whether_the_server_takes_it_or_not() {
    for takes in [true, false] {
        let (mut connection, mut server) = pair(usize::MAX / 2).await;
        let serving = tokio::spawn(async move {
            server.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.unwrap();
            let mut step = vec![0; PIECE_BYTES];
            server.read_exact(&mut step).await.unwrap();
            server.write_all(b"HTTP/1.1 507 Full\r\nContent-Len").await.unwrap();
            server.write_all(b"gth: 3\r\n\r\nno\n").await.unwrap();
            while takes && server.read(&mut step).await.is_ok_and(|count| count > 0) {}
            server
        });
        let body = vec![7; PIECE_BYTES];
        let sending = async { while connection.write_body(&body, LONG).await.unwrap() == Sent::All {} };
        timeout(LONG, sending).await.expect("the refusal is seen");
        let response = connection.response().await.unwrap();
        assert_eq!(response.head.status.code(), 507, "takes: {takes}");
        assert_eq!(connection.first_line().await, "no");
        assert!(!connection.is_reusable());
        drop(connection);
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_ends_its_direction_gets_no_more_of_the_body() {
    let (mut connection, mut server) = pair(usize::MAX / 2).await;
    server.shutdown().await.unwrap();
    let body = vec![7; PIECE_BYTES];
    let sending = async { while connection.write_body(&body, LONG).await.unwrap() == Sent::All {} };
    timeout(LONG, sending).await.expect("the end is seen");
    let error = connection.response().await.unwrap_err();
    assert!(error.message().contains("without an answer"), "{error}");
}

#[tokio::test]
async fn who_says_yes_ahead_of_time_gets_the_whole_body() {
    let (mut connection, mut server) = pair(LARGE_BYTES).await;
    server.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\nmore").await.unwrap();
    let taking = tokio::spawn(async move {
        let mut body = vec![0; LARGE_BYTES];
        server.read_exact(&mut body).await.unwrap();
    });
    for piece in vec![7; LARGE_BYTES].chunks(PIECE_BYTES) {
        assert_eq!(connection.write_body(piece, LONG).await.unwrap(), Sent::All);
    }
    taking.await.unwrap();
    assert_eq!(connection.response().await.unwrap().head.status.code(), 201);
}
