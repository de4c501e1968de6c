//! Leaving the host's namespaces.
//!
//! Entering a namespace that exists is `rustix::thread::move_into_link_name_space`, which is safe.

use std::io;

use rustix::thread::UnshareFlags;

/// Namespaces that a thread can have for its own (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Of users: in it, the process that made it is root. Only for a process with a single thread.
    User,
    /// Of mounts. The calling thread's working directory becomes its own too.
    Mount,
    /// Of network devices and addresses, and of the host name.
    NetworkAndHostName,
}

/// Gives the calling thread, and what it starts from now on, new namespaces.
pub fn unshare(what: Namespaces) -> io::Result<()> {
    let flags = match what {
        Namespaces::User => UnshareFlags::NEWUSER,
        Namespaces::Mount => UnshareFlags::NEWNS,
        Namespaces::NetworkAndHostName => UnshareFlags::NEWNET | UnshareFlags::NEWUTS,
    };
    // SAFETY: none of these flags unshares memory or file descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}
