// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was recorded is read back: whatever is in it, however the recorder ended, and by others' tools.

mod fixtures;
mod guarding;
mod keeping;
mod reading;
mod sealing;
mod surviving;
mod tools;
mod unread;
mod versions;
