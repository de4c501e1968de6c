//! TUN devices: a network interface whose packets a process reads and writes.
//!
//! Opened so that the kernel hands over whole super-packets (linux/if_tun.h, `IFF_VNET_HDR` and
//! `TUNSETOFFLOAD`): up to 64 KiB of one TCP connection in one piece, neither cut into segments nor with
//! a finished checksum, behind a header that says how to do both.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Where the kernel offers its TUN devices.
pub const DEVICE: &str = "/dev/net/tun";

// linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
/// `IFF_TUN_EXCL`, which does not fit a signed short as a positive number.
const IFF_TUN_EXCL: libc::c_short = 0x8000_u16 as libc::c_short;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

const TCP_OFFLOADS: libc::c_ulong = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
const UDP_OFFLOADS: libc::c_ulong = TUN_F_USO4 | TUN_F_USO6;

/// A TUN device of the network namespace it was made in, gone when the value is dropped.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl Tun {
    /// Makes a device in the calling thread's network namespace. Reads do not wait.
    ///
    /// Fails if there is a device of this name, with `PermissionDenied` where the process may not, with
    /// `NotFound` where the kernel has no TUN devices. UDP super-packets are left out where the kernel
    /// does not have them (before 6.2).
    pub fn create(name: &str) -> io::Result<Tun> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        let name = CString::new(name).map_err(io::Error::other)?;
        let name = name.as_bytes_with_nul();
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() > request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a device is too long"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
        if unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let tun = Tun(file.into());
        tun.offload(TCP_OFFLOADS | UDP_OFFLOADS).or_else(|_| tun.offload(TCP_OFFLOADS))?;
        Ok(tun)
    }

    fn offload(&self, what: libc::c_ulong) -> io::Result<()> {
        // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), TUNSETOFFLOAD, what) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads one packet with its header; `None`: there is none now.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.0, into) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Hands the kernel one packet with its header, as if it had arrived at the device.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.0, packet).map(|_| ()).map_err(io::Error::from)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
