//! Attributes that users give to files and directories: extended attributes `user.U.<name>`, as XRootD's
//! (`XrdXrootd/XrdXrootdXeqFAttr.cc`), so that both see the same ones. The prefix keeps them apart from what the
//! storages keep there for themselves, as checksums.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use gridlane_core::limits;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::{READING, Shared};
use crate::error::{StoreError, StoreResult};
use crate::path::ObjectPath;
use crate::writable::{check_attribute, check_attribute_name};

const PREFIX: &[u8] = b"user.U.";

/// The kernel's own limit for all names of one file (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 65_536;

pub(super) fn names(shared: &Shared, path: &ObjectPath) -> StoreResult<Vec<Vec<u8>>> {
    let file = open(shared, path)?;
    let mut list = vec![0; LIST_BYTES_MAX];
    let len = flistxattr(&file, &mut list[..])?;
    let names = list[..len].split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(PREFIX));
    Ok(names.filter(|name| check_attribute_name(name).is_ok()).map(<[u8]>::to_vec).collect())
}

pub(super) fn get(shared: &Shared, path: &ObjectPath, name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
    check_attribute_name(name)?;
    let file = open(shared, path)?;
    let mut value = vec![0; limits::ATTRIBUTE_VALUE_BYTES_MAX];
    match fgetxattr(&file, OsStr::from_bytes(&prefixed(name)), &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            value.shrink_to_fit();
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

pub(super) fn set(
    shared: &Shared,
    path: &ObjectPath,
    name: &[u8],
    value: &[u8],
    must_be_new: bool,
) -> StoreResult<()> {
    check_attribute(name, value)?;
    let flags = if must_be_new { XattrFlags::CREATE } else { XattrFlags::empty() };
    let file = open(shared, path)?;
    fsetxattr(&file, OsStr::from_bytes(&prefixed(name)), value, flags).map_err(|cause| match cause {
        // A file system that has less room for one.
        Errno::TOOBIG | Errno::RANGE => StoreError::TooLarge,
        other => other.into(),
    })
}

pub(super) fn remove(shared: &Shared, path: &ObjectPath, name: &[u8]) -> StoreResult<bool> {
    check_attribute_name(name)?;
    let file = open(shared, path)?;
    match fremovexattr(&file, OsStr::from_bytes(&prefixed(name))) {
        Ok(()) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}

fn open(shared: &Shared, path: &ObjectPath) -> StoreResult<OwnedFd> {
    shared.open_served(path, READING).map(|(descriptor, _)| descriptor)
}

fn prefixed(name: &[u8]) -> Vec<u8> {
    [PREFIX, name].concat()
}
