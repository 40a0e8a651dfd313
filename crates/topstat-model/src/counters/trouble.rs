// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which counters of the kernel stand for trouble: what was dropped, refused, reset, sent again or was malformed.

/// The names of the kernel's counters are made of words. A counter with one of these parts stands for trouble, also one that a
/// later kernel brings.
const TROUBLE: &[&str] = &[
    "Abort",
    "AddrErr",
    "Bad",
    "Discard",
    "Drop",
    "Err",
    "Fail",
    "HdrErr",
    "Invalid",
    "Lost",
    "Mismatch",
    "NoPorts",
    "NoRoute",
    "NoState",
    "NotFound",
    "Overflow",
    "PAWS",
    "Pressures",
    "Prune",
    "QFull",
    "Retrans",
    "ReversePath",
    "Reset",
    "Rsts",
    "Syncookies",
    "Timeout",
    "TooBig",
    "Truncated",
    "UnknownProtos",
    "WantZeroWindow",
];

/// Counters with such a part in their names that count what is normal, or no events at all: a time, an undone retransmit, an
/// answer to packets that others have sent wrong.
const NORMAL: &[&str] = &["TCPMemoryPressuresChrono", "SyncookiesRecv", "OutRsts"];

/// Whether a counter of this name stands for trouble.
///
/// ```
/// use topstat_model::counters::is_trouble;
/// assert!(is_trouble("ListenOverflows") && is_trouble("RetransSegs"));
/// assert!(!is_trouble("InSegs"));
/// ```
pub fn is_trouble(counter: &str) -> bool {
    TROUBLE.iter().any(|part| counter.contains(part)) && !NORMAL.contains(&counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_counters_are_told_apart() {
        for trouble in [
            "InHdrErrors",
            "InAddrErrors",
            "InDiscards",
            "OutDiscards",
            "OutNoRoutes",
            "ReasmFails",
            "ReasmTimeout",
            "FragFails",
            "AttemptFails",
            "EstabResets",
            "RetransSegs",
            "InErrs",
            "InCsumErrors",
            "NoPorts",
            "RcvbufErrors",
            "SndbufErrors",
            "MemErrors",
            "ListenOverflows",
            "ListenDrops",
            "PruneCalled",
            "RcvPruned",
            "TCPBacklogDrop",
            "TCPReqQFullDrop",
            "TCPTimeouts",
            "TCPAbortOnMemory",
            "TCPMemoryPressures",
            "TCPRcvQDrop",
            "TCPSynRetrans",
            "TCPLostRetransmit",
            "PAWSEstab",
            "IPReversePathFilter",
            "EmbryonicRsts",
            "TCPWantZeroWindowAdv",
            "TCPRetransFail",
            "XfrmInNoStates",
            "SyncookiesFailed",
            "InTruncatedPkts",
        ] {
            assert!(is_trouble(trouble), "{trouble}");
        }
        for normal in [
            "InReceives",
            "ForwDatagrams",
            "InDelivers",
            "OutRequests",
            "ActiveOpens",
            "PassiveOpens",
            "CurrEstab",
            "InSegs",
            "OutSegs",
            "OutRsts",
            "InDatagrams",
            "TW",
            "DelayedACKs",
            "TCPHPHits",
            "TCPPureAcks",
            "TCPSackRecovery",
            "TCPLossUndo",
            "TCPFullUndo",
            "TCPLossProbes",
            "TCPKeepAlive",
            "TCPOrigDataSent",
            "InOctets",
            "OutOctets",
            "InNoECTPkts",
            "TCPMemoryPressuresChrono",
            "TCPAutoCorking",
            "InEchos",
        ] {
            assert!(!is_trouble(normal), "{normal}");
        }
    }
}
