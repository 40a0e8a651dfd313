// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of samples: their categories in both views, and their sides.

use topstat_model::stacks::{Category, Found, Side};

use super::{Classifier, Sampled, Verdict, Why};
use crate::netstack::rules::Rules;
use topstat_kernel::symbols::Symbols;

/// A kernel with these functions: the first is at 0x1000, and each is 0x10 long.
const FUNCTIONS: [&str; 22] = [
    "tcp_ack",
    "tcp_sendmsg_locked",
    "tcp_sendmsg",
    "zz_of_no_rule",
    "tcp_v4_rcv",
    "tcp_data_queue",
    "_raw_spin_unlock_irqrestore",
    "__skb_wait_for_more_packets",
    "__x86_indirect_thunk_rax",
    "net_rx_action",
    "handle_softirqs",
    "_copy_to_iter",
    "tcp_recvmsg",
    "pv_native_safe_halt",
    "do_idle",
    "asm_sysvec_apic_timer_interrupt",
    "sock_def_readable",
    "try_to_wake_up",
    "tcp_write_timer",
    "__sys_sendto",
    "do_syscall_64",
    "_etext",
];

fn classifier() -> Classifier {
    let lines = FUNCTIONS.iter().enumerate().map(|(at, name)| format!("{:x} t {name}\n", 0x1000 + 0x10 * at));
    Classifier::new(Rules::own(), Symbols::parse(&lines.collect::<String>()))
}

/// An address within the function.
fn address(name: &str) -> u64 {
    let at = FUNCTIONS.iter().position(|function| *function == name);
    at.map_or(0xffff, |at| 0x1004 + 0x10 * at as u64)
}

fn sampled(stack: &[&str], idle_task: bool) -> Sampled {
    let addresses: Vec<u64> = stack.iter().map(|name| address(name)).collect();
    classifier().stack(&addresses, idle_task)
}

fn ran(stack: &[&str]) -> ([Found; 2], Side) {
    match sampled(stack, false) {
        Sampled::Ran { found, side, .. } => (found, side),
        Sampled::Idle => panic!("{stack:?} is idle"),
    }
}

#[test]
fn a_function_is_of_the_category_of_its_name_or_of_those_around() {
    let classifier = classifier();
    let of = |name| classifier.symbol(name, None);
    let tcp = Verdict::Category(Category::TcpIp);
    assert_eq!(of("tcp_ack"), Some((tcp, Why::Rule("tcp_*".to_owned()))));
    assert_eq!(of("zz_of_no_rule"), Some((tcp, Why::Near("tcp_v4_rcv".to_owned()))));
    assert_eq!(of("zz_of_no_kernel"), None);
    assert_eq!(classifier.symbol("zz", Some("veth")).unwrap().1.text(), "@veth");
}

#[test]
fn what_is_decided_by_its_caller_goes_up_the_stack() {
    use Category::{Lock, TcpIp};
    let thunk = ["__x86_indirect_thunk_rax", "tcp_ack"];
    assert_eq!(ran(&thunk).0, [Found::ByCaller(TcpIp); 2]);
    assert_eq!(ran(&["an address of nothing", "tcp_ack"]).0, [Found::ByCaller(TcpIp); 2]);
    assert_eq!(ran(&["tcp_ack"]).0, [Found::ByName(TcpIp); 2]);
    assert_eq!(ran(&["__x86_indirect_thunk_rax"]).0, [Found::Unknown; 2]);
    assert_eq!(ran(&[]).0, [Found::Unknown; 2]);
    assert_eq!(ran(&["_raw_spin_unlock_irqrestore"]).0, [Found::ByName(Lock); 2]);
}

#[test]
fn a_sample_where_interrupts_are_let_in_is_of_what_ran_before() {
    use Category::{Lock, Sched};
    let (found, _) = ran(&["_raw_spin_unlock_irqrestore", "try_to_wake_up", "sock_def_readable", "tcp_data_queue"]);
    assert_eq!(found, [Found::ByName(Lock), Found::ByName(Sched)]);
}

#[test]
fn a_side_is_told_by_the_innermost_call_that_begins_one() {
    let send = ["tcp_sendmsg_locked", "tcp_sendmsg", "__sys_sendto", "do_syscall_64"];
    let receive = ["_copy_to_iter", "tcp_recvmsg", "do_syscall_64"];
    assert_eq!(ran(&send).1, Side::Send);
    assert_eq!(ran(&receive).1, Side::Receive);
    let arrived = ["tcp_v4_rcv", "net_rx_action", "handle_softirqs"];
    assert_eq!(ran(&[&arrived[..], &send].concat()).1, Side::SoftirqReceive);
    assert_eq!(ran(&["tcp_ack", "tcp_write_timer", "handle_softirqs", "do_idle"]).1, Side::SoftirqSend);
    assert_eq!(ran(&["do_syscall_64"]).1, Side::Other);
}

#[test]
fn only_the_idle_task_is_idle() {
    let halted = ["pv_native_safe_halt", "do_idle"];
    assert_eq!(sampled(&halted, true), Sampled::Idle);
    assert_eq!(ran(&halted).0, [Found::ByCaller(Category::Sched); 2]);
    let arrived = ["tcp_v4_rcv", "net_rx_action", "handle_softirqs", "asm_sysvec_apic_timer_interrupt", "do_idle"];
    let Sampled::Ran { found, side, .. } = sampled(&arrived, true) else { panic!("packets are no idleness") };
    assert_eq!((found[0], side), (Found::ByName(Category::TcpIp), Side::SoftirqReceive));
}
