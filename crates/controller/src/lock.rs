//! Taking a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. Nobody panics while they hold one, and in a release a panic ends the process: what is behind it is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
