//! When a thread gets a core.

use std::io;

/// Lets the calling thread run before all ordinary ones (`SCHED_RR` at the lowest of its priorities, so
/// that everything else that is real-time still comes first), where the process may.
pub fn real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; `parameters` is readable for the length of the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// CPU time of the calling thread so far.
pub fn thread_cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
