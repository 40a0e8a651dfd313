// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends requests and receives responses, as far as the socket accepts or has data.

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};

use super::Runner;

/// The maximum number of bytes that one call on a stream sends or receives.
pub(super) const PART: usize = 256 * 1024;

/// The length of a datagram's sequence number, in datagrams that are long enough for it.
const SEQUENCE: usize = size_of::<u64>();

/// The progress of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is complete.
    Done,
    /// The socket must become ready first, or a blocking call has timed out.
    Wait,
    /// The connection is gone.
    Failed,
}

impl Runner<'_> {
    /// Sends the rest of the request.
    pub(super) fn send(&mut self, index: usize, flags: SendFlags) -> Step {
        let slot = &mut self.slots[index];
        let Some(client) = &self.conns[index].client else {
            return Step::Failed;
        };
        if self.datagrams && self.out.len() >= SEQUENCE {
            self.out[..SEQUENCE].copy_from_slice(&slot.sequence.to_ne_bytes());
        }
        while slot.to_send > 0 {
            let part = slot.to_send.min(self.out.len());
            match net::send(client, &self.out[..part], flags | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    slot.to_send -= sent;
                    slot.count.sent += sent as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Step::Wait,
                Err(_) => return Step::Failed,
            }
        }
        if slot.to_receive == 0 { Step::Done } else { Step::Wait }
    }

    /// Receives the rest of the response.
    pub(super) fn receive(&mut self, index: usize, flags: RecvFlags) -> Step {
        let Some(client) = &self.conns[index].client else {
            return Step::Failed;
        };
        let slot = &mut self.slots[index];
        while slot.to_receive > 0 {
            match net::recv(client, &mut self.input[..], flags) {
                Ok((0, _)) => return Step::Failed,
                Ok((count, _)) => {
                    slot.count.received += count as u64;
                    if !self.datagrams {
                        slot.to_receive -= count.min(slot.to_receive);
                    } else if count >= SEQUENCE
                        && self.request >= SEQUENCE
                        && self.input[..SEQUENCE] != slot.sequence.to_ne_bytes()
                    {
                        // This answers a request that was given up as lost.
                    } else {
                        slot.to_receive = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Step::Wait,
                Err(_) => return Step::Failed,
            }
        }
        Step::Done
    }

    /// Continues a transaction whose socket has become ready.
    pub(super) fn go_on(&mut self, index: usize) -> Step {
        if self.slots[index].to_send > 0 {
            let step = self.send(index, SendFlags::DONTWAIT);
            if step != Step::Wait || self.slots[index].to_send > 0 {
                return step;
            }
        }
        self.receive(index, RecvFlags::DONTWAIT)
    }
}
