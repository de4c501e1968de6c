//! What the kernel knows of a TCP connection, and ports that refuse.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The part of `TCP_INFO` that a transfer tool can act on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpInfo {
    /// Smallest round trip the kernel has seen on the connection (`tcpi_min_rtt` where the kernel has
    /// it, else the smoothed one).
    pub round_trip: Duration,
    /// Round trip of the data that came last (`tcpi_rcv_rtt`, smoothed, in steps of a millisecond): from an
    /// acknowledgement that was sent to the data that it made the peer send. It has in it what waits in queues on the
    /// way. `None` before data came.
    pub loaded_round_trip: Option<Duration>,
    /// Packets that came out of order so far (`tcpi_rcv_ooopack`): all that came between one that was lost on the way and
    /// its second sending. `None` where the kernel does not tell (before Linux 5.4).
    pub out_of_order: Option<u32>,
}

/// `tcpi_min_rtt` lies behind the fields that the C library's structure has: its offset in the kernel's
/// `struct tcp_info` (linux/tcp.h; the structure only ever grows at its end).
const MIN_RTT_OFFSET: usize = 148;
/// Like [`MIN_RTT_OFFSET`], of `tcpi_rcv_ooopack`.
const OUT_OF_ORDER_OFFSET: usize = 224;
const INFO_BYTES: usize = 232;

/// Asks the kernel about a connected TCP socket.
pub fn info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    #[repr(C, align(8))]
    struct Raw([u8; INFO_BYTES]);
    let mut raw = Raw([0; INFO_BYTES]);
    let mut len = INFO_BYTES as libc::socklen_t;
    // SAFETY: `raw` is writable for `len` bytes, and the kernel writes at most that many.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.0.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(read(raw.0.get(..len as usize).unwrap_or(&raw.0)))
}

/// `raw`: as much of the structure as the kernel has.
fn read(raw: &[u8]) -> TcpInfo {
    let u32_at = |offset: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(raw.get(offset..offset + 4)?.try_into().ok()?))
    };
    let micros = |value: u32| Duration::from_micros(value.into());
    let smoothed = u32_at(mem::offset_of!(libc::tcp_info, tcpi_rtt)).unwrap_or(0);
    let smallest = u32_at(MIN_RTT_OFFSET).filter(|rtt| *rtt != 0 && *rtt != u32::MAX).unwrap_or(smoothed);
    let loaded = u32_at(mem::offset_of!(libc::tcp_info, tcpi_rcv_rtt)).filter(|rtt| *rtt != 0);
    let out_of_order = u32_at(OUT_OF_ORDER_OFFSET);
    TcpInfo { round_trip: micros(smallest), loaded_round_trip: loaded.map(micros), out_of_order }
}

/// Bytes that were written to `socket` and that its peer has not acknowledged (`SIOCOUTQ`).
pub fn unacknowledged_bytes(socket: &impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: `count` is writable, and the kernel writes one number of its type. `TIOCOUTQ` is what `SIOCOUTQ` is an alias of
    // (linux/sockios.h).
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    match answer {
        0 => Ok(usize::try_from(count).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a task that waits for `socket` woken only when `bytes` are there (`SO_RCVLOWAT`), or when it has ended or is
/// full. If as many are there already, they are woken now.
pub fn set_receive_mark(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: `value` is readable for its size.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A port of loopback that is taken and at which nothing listens, for tests: as long as this lives, connections to it are refused,
/// and no other socket gets its number, as one would after a listener that is dropped.
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ClosedPort {
    /// Takes a port of 127.0.0.1 that the kernel has free. Fails where the process may have no further descriptor, or where no
    /// port is left.
    pub fn new() -> io::Result<ClosedPort> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(ClosedPort { address, _socket: socket })
    }

    /// The address and the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_loopback_connection_has_a_short_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        let info = info(&near).unwrap();
        assert!(info.round_trip > Duration::ZERO, "{info:?}");
        assert!(info.round_trip < Duration::from_secs(5), "{info:?}");
    }

    #[test]
    fn a_kernel_that_does_not_count_packets_out_of_order_says_nothing_of_them() {
        let mut raw = [0; INFO_BYTES];
        raw[OUT_OF_ORDER_OFFSET..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(read(&raw).out_of_order, Some(7));
        assert_eq!(read(&raw[..OUT_OF_ORDER_OFFSET]).out_of_order, None);
        assert_eq!(read(&[]).out_of_order, None);
    }

    #[test]
    fn the_round_trip_of_data_is_known_when_data_came() {
        const BYTES: usize = 16 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(info(&near).unwrap().loaded_round_trip, None);
        let sending = std::thread::spawn(move || far.write_all(&vec![7; BYTES]).map(|()| far));
        near.read_exact(&mut vec![0; BYTES]).unwrap();
        let loaded = info(&near).unwrap().loaded_round_trip;
        assert!(loaded.is_some_and(|loaded| loaded < Duration::from_secs(5)), "{loaded:?}");
        sending.join().unwrap().unwrap();
    }

    #[test]
    fn a_mark_is_set_and_a_number_that_is_none_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        set_receive_mark(&near, 100).unwrap();
        far.write_all(&[7; 100]).unwrap();
        let mut bytes = [0; 200];
        assert_eq!(near.read(&mut bytes).unwrap(), 100, "a read waits for as many");
        assert!(set_receive_mark(&near, usize::MAX).is_err());
    }

    #[test]
    fn what_the_peer_does_not_take_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count;
        }
        let left = unacknowledged_bytes(&near).unwrap();
        assert!((1..=written).contains(&left), "{left} of {written}");
        far.read_exact(&mut vec![0; written]).unwrap();
        let began = std::time::Instant::now();
        while unacknowledged_bytes(&near).unwrap() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "the acknowledgements are under way for ever");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_no_tcp_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(info(&file).is_err() && unacknowledged_bytes(&file).is_err());
    }

    #[test]
    fn a_closed_port_refuses_and_is_taken() {
        let closed = ClosedPort::new().unwrap();
        let refused = TcpStream::connect(closed.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(closed.address()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
