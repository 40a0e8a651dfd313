// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records are read back: whatever they hold, however the recorder ended, and by other tools, too.

mod fixtures;
mod guarding;
mod keeping;
mod parts;
mod reading;
mod sealing;
mod surviving;
mod tools;
mod unread;
mod versions;
