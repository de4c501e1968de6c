//! Random numbers of the system, which cannot be guessed.

use gridlane_core::{Error, ErrorKind, Fault, Result};

/// So many random bytes.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES]> {
    let mut random = [0; BYTES];
    let failed = |cause: rustix::io::Errno| {
        Error::local_io("the system has no random numbers", &std::io::Error::from(cause))
    };
    let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    if filled.map_err(failed)? < random.len() {
        return Err(Error::new(ErrorKind::Other, "the system has too few random numbers").fault(Fault::Local));
    }
    Ok(random)
}
