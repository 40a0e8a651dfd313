// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that stay usable after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock, even if a thread has panicked while it held the lock. Every change under a lock of this program leaves nothing
/// half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
