//! The right to make namespaces, and the namespaces that the whole process lives in.

use std::fs;
use std::path::Path;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::namespace::{Namespaces, unshare};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

/// Where names are looked up first.
const HOSTS: &str = "/etc/hosts";

/// By what right namespaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process has it.
    Root,
    /// The process is root in a user namespace of its own, an ordinary user outside.
    UserNamespace,
}

impl Privilege {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Privilege::Root => "root",
            Privilege::UserNamespace => "user namespace",
        }
    }

    /// Obtains the right. To be called while the process has a single thread: the kernel puts no process
    /// with more of them into another user namespace.
    pub fn obtain() -> Result<Privilege> {
        // Asked, not tried: a thread that tries it may still be ending when the process has to have one only.
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
        if capabilities(None).is_ok_and(|sets| sets.effective.contains(needed)) {
            return Ok(Privilege::Root);
        }
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        unshare(Namespaces::User).map_err(|cause| denied(&cause))?;
        let write = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text).map_err(|cause| denied(&cause))
        };
        // user_namespaces(7): without this, an ordinary user must not map groups.
        write("setgroups", "deny".into())?;
        write("uid_map", format!("0 {user} 1"))?;
        write("gid_map", format!("0 {group} 1"))?;
        Ok(Privilege::UserNamespace)
    }
}

pub(crate) fn denied(cause: &std::io::Error) -> Error {
    let message = format!("this user may make no namespaces here: {cause}");
    Error::new(ErrorKind::Denied, message).fault(Fault::Local).hint(
        "run it as root; or let users make namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns) and let them use \
         /dev/net/tun; in a container: give it the capabilities SYS_ADMIN and NET_ADMIN and that device",
    )
}

/// Gives the process mounts of its own, in which `hosts` is what names are looked up in. To be called while
/// the process has a single thread.
pub(crate) fn provide_names(hosts: &Path) -> Result<()> {
    let failed = |what: &str, cause: std::io::Error| Error::local_io(what, &cause);
    unshare(Namespaces::Mount).map_err(|cause| failed("cannot have mounts of its own", cause))?;
    // What is mounted outside later appears here too, never the other way round.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|cause| failed("cannot separate mounts from the host's", cause.into()))?;
    mount_bind(hosts, HOSTS).map_err(|cause| failed("cannot put names into /etc/hosts", cause.into()))
}
