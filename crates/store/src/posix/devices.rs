//! The devices of this machine, and the turns at each: all exports of one file system share them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use gridlane_share::Turns;
use gridlane_share::budget::Share;
use gridlane_share::turns::DeviceShares;

/// Those that are in use, by the number of the device.
static DEVICES: Mutex<Option<HashMap<u64, Weak<Turns>>>> = Mutex::new(None);

/// The shares of devices that are used for the first time.
static SHARES: OnceLock<DeviceShares> = OnceLock::new();

/// Says for the process how much each device has to share, where no server says so. To be called before any is used; what was said
/// first counts.
pub fn share_devices(shares: DeviceShares) {
    let _ = SHARES.set(shares);
}

/// Forgets the turns that are taken at devices: for the child of a fork, where those who took them are not.
pub fn forget_devices() {
    // Not even given back: nobody is there who waits for them.
    std::mem::forget(DEVICES.lock().unwrap_or_else(PoisonError::into_inner).take());
}

fn usual() -> Arc<Turns> {
    Arc::new(Turns::new(SHARES.get().copied().unwrap_or_default()))
}

/// Operations that find and open files at the same time, where each device has so many: half as many. They are short, and the
/// threads that they hold come on top of the device's.
pub fn names_of(operations: usize) -> usize {
    operations.div_ceil(2)
}

/// The turns for finding and opening files: which device that needs is known afterwards.
pub fn turns_of_names() -> &'static Arc<Turns> {
    static NAMES: LazyLock<Arc<Turns>> = LazyLock::new(|| {
        let shares = SHARES.get().copied().unwrap_or_default();
        let half = |share: Share| Share { all: names_of(share.all), one: names_of(share.one) };
        Arc::new(Turns::new(DeviceShares { operations: half(shares.operations), ..shares }))
    });
    &NAMES
}

/// The turns at a device.
pub(crate) fn turns_at(device: u64) -> Arc<Turns> {
    // Every change is complete in itself.
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(turns) = devices.get(&device).and_then(Weak::upgrade) {
        return turns;
    }
    devices.retain(|_, turns| turns.strong_count() > 0);
    let turns = usual();
    devices.insert(device, Arc::downgrade(&turns));
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_as_long_as_it_is_in_use() {
        let (one, same, other) = (turns_at(u64::MAX), turns_at(u64::MAX), turns_at(u64::MAX - 1));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same));
        let _next = turns_at(u64::MAX);
        let devices = DEVICES.lock().unwrap();
        let ours = |device: &u64| devices.as_ref().unwrap()[device].strong_count();
        assert_eq!([u64::MAX, u64::MAX - 1].iter().map(ours).collect::<Vec<_>>(), [1, 1]);
    }
}
