// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of rules: the names that they match, the precedence among several, and errors in them.

use topstat_model::stacks::{Category, Side};

use super::{Rules, Verdict};

/// Functions of the kernel, the files that define them, and the categories of these files: see scripts/netstack-truth.
const TRUTH: &str = include_str!("truth.tsv");

fn truth() -> Vec<(&'static str, Category)> {
    let lines = TRUTH.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &'static str| {
        let mut words = line.split('\t');
        let (name, category) = (words.next().unwrap(), words.nth(1).unwrap());
        (name, Category::of_name(category).unwrap_or_else(|| panic!("{line}")))
    };
    lines.map(of).collect()
}

fn decided(rules: &Rules, symbol: &str) -> Option<(&'static str, String)> {
    rules.verdict(symbol, None).map(|(verdict, pattern)| (verdict.name(), pattern))
}

fn with(text: &str) -> Rules {
    Rules::with_text(text).unwrap_or_else(|(line, why)| panic!("line {line}: {why}"))
}

#[test]
fn the_longest_of_the_most_exact_patterns_decides() {
    let rules = with("mm: aa_* *_zz @mod aa_skb_x\nskb: aa_skb_* @mo*\nlock: *y_zz\n");
    for (symbol, category, pattern) in [
        ("aa_1", "mm", "aa_*"),
        ("aa_", "mm", "aa_*"),
        ("aa_skb_1", "skb", "aa_skb_*"),
        ("__aa_skb_1.isra.0", "skb", "aa_skb_*"),
        ("aa_skb_x", "mm", "aa_skb_x"),
        ("aa_y_zz", "mm", "aa_*"),
        ("qqq_zz", "mm", "*_zz"),
        ("qqy_zz", "lock", "*y_zz"),
    ] {
        assert_eq!(decided(&rules, symbol), Some((category, pattern.to_owned())), "{symbol}");
    }
    let of_module = |module| rules.verdict("qqq", Some(module)).map(|(verdict, pattern)| (verdict.name(), pattern));
    assert_eq!(of_module("mod"), Some(("mm", "@mod".to_owned())));
    assert_eq!(of_module("mode"), Some(("skb", "@mo*".to_owned())));
    assert_eq!(of_module("other"), None);
    assert_eq!(decided(&rules, "qqq"), None);
}

/// The functions that copy to and from users on aarch64 are written in assembler, and in no file of the truth.
#[test]
fn copies_of_aarch64_are_copies() {
    for symbol in ["__arch_copy_to_user", "__arch_copy_from_user", "__arch_clear_user"] {
        assert_eq!(decided(&Rules::own(), symbol).map(|(category, _)| category), Some("data_copy"), "{symbol}");
    }
}

#[test]
fn rules_of_a_file_go_before_those_of_topstat() {
    assert_eq!(decided(&Rules::own(), "tcp_ack"), Some(("tcp/ip", "tcp_*".to_owned())));
    let rules = with("skb: tcp_ac*\ncaller: udp_*\nside send: my_send\nunmask: my_unlock");
    assert_eq!(decided(&rules, "tcp_ack"), Some(("skb", "tcp_ac*".to_owned())));
    assert_eq!(decided(&rules, "tcp_rcv_established"), Some(("tcp/ip", "tcp_*".to_owned())));
    assert_eq!(decided(&rules, "udp_sendmsg").unwrap().0, "caller");
    assert_eq!(rules.side("my_send"), Some(Side::Send));
    assert!(rules.unmasks("my_unlock") && rules.unmasks("_raw_spin_unlock_irqrestore") && !rules.unmasks("kfree"));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, line, says) in [
        ("tcpip: a_*", 1, "no category 'tcpip': there are data_copy, etc"),
        ("# words\n\nmm a_*", 3, "a category, a colon"),
        ("side up: a", 1, "no side is 'up': there are send,"),
        ("mm: a_*\nskb: a_*", 2, "'a_*' can never match: it stands in line 1"),
        ("mm: a a", 1, "'a' can never match"),
        ("mm: *", 1, "'*' can never match: there is no name"),
        ("mm: @", 1, "there is no name"),
        ("mm: a*b", 1, "an asterisk stands at"),
        ("mm: *a*", 1, "an asterisk stands at"),
        ("mm: __a", 1, "without the underscores in front"),
        ("mm: a.isra.0", 1, "what compilers put behind a dot"),
        ("mm: a_noprof", 1, "without _noprof"),
        ("mm: a-b", 1, "no name has a '-'"),
    ] {
        let (found, why) = Rules::with_text(text).expect_err(text);
        assert!(found == line && why.contains(says), "{text}: line {found}: {why}");
    }
}

#[test]
fn what_matches_nothing_of_this_kernel_is_found() {
    let rules = with("mm: here_* gone_* *_end\n\nskb: here gone @mod @none");
    let symbols = [("__here_a", None), ("x_end", None), ("here.isra.0", Some("mod"))];
    let unmatched = rules.unmatched(symbols.into_iter());
    assert_eq!(unmatched, [(1, "gone_*".to_owned()), (3, "gone".to_owned()), (3, "@none".to_owned())]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = Rules::with_file("/nowhere/rules".as_ref()).unwrap_err().to_string();
    assert!(missing.contains("cannot use the rules of /nowhere/rules"), "{missing}");
}

/// Tests the rules by names only, without a kernel, on functions that no rule was made from.
/// `classified::functions_have_the_category_of_their_file` requires 95% on a kernel, where the functions around a function decide
/// if no rule names it.
#[test]
fn names_alone_tell_most_categories() {
    let (truth, rules) = (truth(), Rules::own());
    assert!(truth.len() >= 400, "{}", truth.len());
    let told = |(symbol, category): &(&str, Category)| {
        rules.verdict(symbol, None).map(|(verdict, _)| verdict == Verdict::Category(*category))
    };
    let told: Vec<bool> = truth.iter().filter_map(told).collect();
    let right = told.iter().filter(|right| **right).count();
    assert!(told.len() * 100 >= truth.len() * 70, "{} of {}", told.len(), truth.len());
    assert!(right * 100 >= told.len() * 95, "{right} of {}", told.len());
}
