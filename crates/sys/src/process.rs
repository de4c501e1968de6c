//! What this process has used.

use std::mem::MaybeUninit;
use std::time::Duration;

/// CPU time of all threads of this process so far, user and system together.
pub fn cpu_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and of the right size; RUSAGE_SELF is always valid. All-zero bytes are a
    // valid `rusage`, so it is initialised whatever the call answers.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_only_grows() {
        let before = super::cpu_time();
        let mut sum = 0_u64;
        for at in 0..10_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(at));
        }
        assert!(super::cpu_time() > before, "{sum}");
    }
}
