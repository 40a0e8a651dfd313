// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own counts of a TCP socket.

use serde::Serialize;

use crate::error::{Error, Result};

/// More than the largest `struct tcp_info` so far (280 bytes in Linux 6.18); the kernel writes as much as it has.
pub(crate) const TCP_INFO_MAX: usize = 512;

/// The end of `tcpi_bytes_retrans`, the last field that is read.
const TCP_INFO_NEEDED: usize = 216;

/// Part of the kernel's `struct tcp_info`, with the kernel's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TcpInfo {
    /// State of the connection; 1 is established.
    pub state: u8,
    /// Maximum segment size for sending.
    pub snd_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Segments sent again, over the connection's life.
    pub total_retrans: u32,
    /// Sent bytes that were acknowledged, plus 1 for the handshake on the side that connected.
    pub bytes_acked: u64,
    /// Bytes received and acknowledged.
    pub bytes_received: u64,
    /// Segments sent, including segments without data.
    pub segs_out: u32,
    /// Segments received, including segments without data.
    pub segs_in: u32,
    /// Segments with data that were received.
    pub data_segs_in: u32,
    /// Segments with data that were sent.
    pub data_segs_out: u32,
    /// Bytes sent, retransmitted bytes included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
}

impl TcpInfo {
    /// Reads the fields from the bytes of `getsockopt(TCP_INFO)`. The kernel only appends to the structure, so the offsets
    /// hold on every kernel whose structure is long enough; a shorter structure is refused, and not read as 0.
    pub fn parse(bytes: &[u8]) -> Result<TcpInfo> {
        if bytes.len() < TCP_INFO_NEEDED {
            return Err(Error::TcpInfo { got: bytes.len(), needed: TCP_INFO_NEEDED });
        }
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        Ok(TcpInfo {
            state: bytes[0],
            snd_mss: u32_at(16),
            unacked: u32_at(24),
            rtt_us: u32_at(68),
            snd_cwnd: u32_at(80),
            total_retrans: u32_at(100),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            segs_out: u32_at(136),
            segs_in: u32_at(140),
            data_segs_in: u32_at(152),
            data_segs_out: u32_at(156),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The offsets are the kernel's; libc has the offsets up to tcpi_total_retrans.
    #[test]
    fn offsets_are_those_of_the_c_structure() {
        assert_eq!(offset_of!(libc::tcp_info, tcpi_snd_mss), 16);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_unacked), 24);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_rtt), 68);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_snd_cwnd), 80);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_total_retrans), 100);
    }

    #[test]
    fn longer_structures_are_read_and_shorter_ones_refused() {
        let mut bytes = [0u8; TCP_INFO_NEEDED + 40];
        bytes[208..216].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(TcpInfo::parse(&bytes).unwrap().bytes_retrans, 7);
        assert_eq!(TcpInfo::parse(&bytes[..TCP_INFO_NEEDED]).unwrap().bytes_retrans, 7);
        assert_eq!(
            TcpInfo::parse(&bytes[..192]).unwrap_err().to_string(),
            "the kernel's tcp_info has 192 bytes, 216 are needed (Linux 4.19 or newer)"
        );
    }
}
