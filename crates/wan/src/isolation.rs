//! The right to make namespaces, and the namespaces that the whole process lives in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_sys::namespace::{Namespaces, unshare};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use crate::place::Place;

/// Where names are looked up first, and what says so.
const HOSTS: &str = "/etc/hosts";
const NAME_SERVICES: &str = "/etc/nsswitch.conf";

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

/// Gives the process mounts of its own, in which names are looked up in the network's own files. To be called
/// while the process has a single thread.
pub(crate) fn provide_names(place: &Place) -> Result<()> {
    unshare(Namespaces::Mount).map_err(|cause| not_mounted("cannot have mounts of its own", &cause))?;
    // What is mounted outside later appears here too, never the other way round.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|cause| not_mounted("cannot separate mounts from the host's", &cause.into()))?;
    if let Ok(services) = fs::read_to_string(NAME_SERVICES) {
        place.write(&place.name_services(), &with_files_first(&services))?;
    }
    restore_names(place)
}

/// Puts the network's files back where names are looked up. They lose their place when the host's file of that
/// name is replaced by another one.
pub(crate) fn restore_names(place: &Place) -> Result<()> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    for (own, hosts) in [(place.hosts(), HOSTS), (place.name_services(), NAME_SERVICES)] {
        // A host without name services of its own looks into files first.
        if own.exists() && identity(&own) != identity(Path::new(hosts)) {
            mount_bind(&own, hosts)
                .map_err(|cause| not_mounted(&format!("cannot put names into {hosts}"), &cause.into()))?;
        }
    }
    Ok(())
}

fn not_mounted(what: &str, cause: &std::io::Error) -> Error {
    match cause.kind() {
        std::io::ErrorKind::PermissionDenied => denied(cause),
        _ => Error::new(ErrorKind::Unsupported, format!("{what}: {cause}")).fault(Fault::Local).hint(
            "there must be a file /etc/hosts, and the root directory must be a mount point (it is not in a chroot)",
        ),
    }
}

/// Name services in which host names are those of files, then of DNS: others (a resolver's own service) would
/// answer for the host, and not look at our file.
fn with_files_first(services: &str) -> String {
    let others = services.lines().filter(|line| !line.trim_start().starts_with("hosts:"));
    others.chain(["hosts: files dns"]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn host_names_are_those_of_files() {
        let services =
            "passwd: files systemd\nhosts: mymachines resolve [!UNAVAIL=return] files dns\n# end\n";
        assert_eq!(super::with_files_first(services), "passwd: files systemd\n# end\nhosts: files dns\n");
    }
}
