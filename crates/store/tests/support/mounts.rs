//! Mounts that nobody else sees.

use gridlane_sys::namespace::{Namespaces, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};

/// Runs a test where this thread has mounts of its own; not at all where it may not have them.
pub(crate) fn with_own_mounts(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            if unshare(Namespaces::Mount).is_err() || mount_change("/", private).is_err() {
                eprintln!("skipped: no mounts without the right to make some");
                return;
            }
            test();
        });
    });
}
