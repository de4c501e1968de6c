//! Telling the service manager how far a daemon is (`sd_notify`(3)): a datagram to the socket that it names.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Longest wait for the manager.
const TELL_MAX: Duration = Duration::from_secs(1);

/// It serves.
pub fn ready() {
    tell("READY=1");
}

/// It reads its configuration again; [`ready`] follows.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec as i128 * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// It was told to stop.
pub fn stopping() {
    tell("STOPPING=1");
}

/// Mostly there is no manager; and one that cannot be reached has its own ways to find out.
fn tell(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(path.as_bytes(), state);
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that is busy has a full queue for a moment: without `READY=1` it would end the server later. One that
    // does not read at all must not hold us up.
    socket.set_write_timeout(Some(TELL_MAX))?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_and_without_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let name = format!("gridlane-notify-{}", std::process::id());
        let listeners = [
            UnixDatagram::bind(&path).unwrap(),
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
        ];
        for (listener, address) in listeners.iter().zip([path.to_str().unwrap(), &format!("@{name}")]) {
            send(address.as_bytes(), "READY=1").unwrap();
            let mut told = [0; 100];
            let len = listener.recv(&mut told).unwrap();
            assert_eq!(&told[..len], b"READY=1");
        }
        assert!(send(b"/no/such/socket", "READY=1").is_err());
    }
}
