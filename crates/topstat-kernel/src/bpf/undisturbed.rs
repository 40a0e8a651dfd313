// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that no signal disturbs.
//!
//! The verifier gives up with EAGAIN as soon as a signal is pending for the thread that loads a program, and libbpf tries five
//! times. Where signals come faster than a program is verified (a terminal that is being resized, a process with many children),
//! it would never be loaded.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// While this lives, signals wait, or are taken by other threads of the process. Signals that can't be blocked (SIGKILL, SIGSTOP)
/// still arrive.
pub struct Undisturbed {
    before: libc::sigset_t,
    /// Binds this to the thread that made it.
    of_thread: PhantomData<*const ()>,
}

impl Undisturbed {
    pub fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first call fills one set, the second reads it and fills the other. Neither can fail: the set is filled, and
        // the way to change the mask is valid.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, of_thread: PhantomData }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: it is the mask that the same thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::Undisturbed;

    fn blocks(signal: libc::c_int) -> bool {
        let mut mask = std::mem::MaybeUninit::uninit();
        // SAFETY: nothing is changed, and the mask is filled.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn the_mask_is_as_before() {
        assert!(!blocks(libc::SIGTERM));
        {
            let _outer = Undisturbed::new();
            drop(Undisturbed::new());
            assert!(blocks(libc::SIGTERM) && blocks(libc::SIGWINCH));
        }
        assert!(!blocks(libc::SIGTERM));
    }
}
