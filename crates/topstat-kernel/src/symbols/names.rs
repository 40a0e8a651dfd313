// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the name of a function in the kernel's source, without the additions of compilers and macros.

/// Prefixes that macros add. Each stands behind underscores, and may have underscores behind it.
const BEFORE: [&str; 5] = [
    "raw_callee_save_", // paravirtual operations (PV_CALLEE_SAVE_REGS_THUNK)
    "pfx_",             // the padding before a function
    "cfi_",             // the padding before a function, with CFI
    "pi_",              // aliases that do not depend on the position
    "SCT__",            // the trampoline of a static call
];
/// The suffix that macros add: allocation profiling (Linux 6.10).
const BEHIND: &str = "_noprof";

/// The name as rules see it: without underscores in front, without `.isra.0`, `.constprop.0`, `.part.0`, `.cold` and `.llvm.1`
/// behind, and without the additions of macros. A name that would become empty stays as it is.
pub fn plain(symbol: &str) -> &str {
    let name = symbol.split('.').next().unwrap_or_default();
    let name = name.strip_suffix(BEHIND).unwrap_or(name);
    let mut plain = name.trim_start_matches('_');
    // Only behind underscores: `pfx_init` is a name.
    if plain.len() < name.len() {
        while let Some(rest) = BEFORE.iter().find_map(|before| plain.strip_prefix(before)) {
            plain = rest.trim_start_matches('_');
        }
    }
    if plain.is_empty() { symbol } else { plain }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_compilers_and_macros_add_is_taken_off() {
        for (symbol, name) in [
            ("tcp_ack", "tcp_ack"),
            ("__tcp_transmit_skb", "tcp_transmit_skb"),
            ("finish_task_switch.isra.0", "finish_task_switch"),
            ("__netif_receive_skb_core.constprop.0", "netif_receive_skb_core"),
            ("mld_send_initial_cr.part.0.isra.0", "mld_send_initial_cr"),
            ("tcp_v4_rcv.cold", "tcp_v4_rcv"),
            ("do_poll.llvm.12345", "do_poll"),
            ("__alloc_frozen_pages_noprof", "alloc_frozen_pages"),
            ("__kmalloc_node_noprof.isra.0", "kmalloc_node"),
            ("__raw_callee_save___pv_queued_spin_unlock", "pv_queued_spin_unlock"),
            ("__pfx_tcp_ack", "tcp_ack"),
            ("__pi_memcpy", "memcpy"),
            ("__SCT__tp_func_netif_rx", "tp_func_netif_rx"),
            ("bpf_prog_6deef7357e7b4530_sd_devices", "bpf_prog_6deef7357e7b4530_sd_devices"),
            ("pi_state_update_owner", "pi_state_update_owner"),
            ("_", "_"),
            ("__pfx_", "__pfx_"),
            ("", ""),
        ] {
            assert_eq!(plain(symbol), name, "{symbol}");
        }
    }
}
