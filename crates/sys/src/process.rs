//! What this process has used.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// CPU time of all threads of this process so far, user and system together.
pub fn cpu_time() -> Duration {
    let usage = usage_of(libc::RUSAGE_SELF);
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// How often this thread has given its processor up so far to wait for something: not how often another one took it away.
pub fn waits_of_thread() -> u64 {
    usage_of(libc::RUSAGE_THREAD).ru_nvcsw as u64
}

fn usage_of(who: libc::c_int) -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and of the right size. All-zero bytes are a valid `rusage`, so it is initialised whatever the
    // call answers.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// Processors that this process may use, as it was at the first call: to find out reads files of the kernel's for a tenth of a
/// millisecond.
pub fn processors() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Gives memory that the allocator keeps unused back to the kernel; may take milliseconds. With allocators
/// other than glibc's it does nothing.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// From now on a write beyond the limit on the size of files (`RLIMIT_FSIZE`) fails with `EFBIG`, instead of killing this process
/// by SIGXFSZ without a word. Programs that are started are killed as ever.
pub fn hear_of_file_size_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler touches nothing; a handler, unlike a signal that is ignored, ends with exec.
    unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
}

/// Lets the kernel kill what the command becomes when the thread that started it ends, however it does.
pub fn end_with_thread(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made that take numbers.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The end of a parent that was faster than this is told by nothing else: the child has another parent by now.
            match u32::try_from(libc::getppid()) {
                Ok(now) if now == parent => Ok(()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        })
    };
}

/// Keeps descriptors beyond standard input, output and error from programs that are started from now on.
/// Before Linux 5.11 it does nothing.
pub fn keep_descriptors() {
    // SAFETY: it sets a flag of descriptors, and frees none.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// A process that was forked from one that watches forks.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Has [`is_forked`] tell the children of forks from now on. Twice is as good as once.
pub fn watch_forks() -> io::Result<()> {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler stores a number, which is all that it may do in the child of a process with threads.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// True in a process that was forked, by `fork` of the C library, from one that had called [`watch_forks`] before.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Does something while this thread has all signals blocked, as the threads that it begins will have them for ever. Those that come
/// for the process meanwhile go to its other threads, or wait.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    struct Before(libc::sigset_t);
    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: it is what was there before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::zeroed(), MaybeUninit::zeroed());
    // SAFETY: both sets are writable; all-zero bytes are a valid set, so that `before` is one whatever the call answers.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
            0 => Before(before.assume_init()),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    let done = work();
    drop(before);
    Ok(done)
}

#[cfg(test)]
mod tests {
    #[test]
    fn waiting_is_told_from_working() {
        let begun = super::waits_of_thread();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::waits_of_thread() > begun);
    }

    #[test]
    fn it_only_grows() {
        let before = super::cpu_time();
        let mut sum = 0_u64;
        for at in 0..10_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(at));
        }
        assert!(super::cpu_time() > before, "{sum}");
    }

    #[test]
    fn threads_that_begin_with_signals_blocked_keep_them_so() {
        // What the kernel says of a thread: a bit for each signal from 1 on.
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
            u64::from_str_radix(mask, 16).unwrap()
        };
        let before = blocked();
        let begin = || std::thread::spawn(blocked).join().unwrap();
        let inside = super::with_signals_blocked(begin).unwrap();
        let of = |signal: libc::c_int| 1_u64 << (signal - 1);
        for signal in [libc::SIGINT, libc::SIGPIPE, libc::SIGALRM, libc::SIGCHLD] {
            assert_ne!(inside & of(signal), 0);
        }
        assert_eq!((blocked(), begin()), (before, before));
    }

    #[test]
    fn a_fork_is_told_in_the_child_alone() {
        super::watch_forks().unwrap();
        super::watch_forks().unwrap();
        // SAFETY: the child looks at a number and ends.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(if super::is_forked() { 7 } else { 8 }),
                child => child,
            }
        };
        let mut status = 0;
        // SAFETY: the status is written there.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
        assert!(!super::is_forked());
    }
}
