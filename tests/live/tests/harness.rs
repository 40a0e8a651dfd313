// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The harness itself: repeating a test must not hide a defect.

use topstat_live::harness::itself;
use topstat_live::tally::Tally;
use topstat_live::{Case, Netns, Role, Transport, Witness, alone, case};

use topstat_live::witness::only_what_others_have_sent_is_excused;

use itself::{only_what_was_disturbed_is_tried_again, tests_are_chosen_by_name_and_tag};

pub fn cases() -> Vec<Case> {
    vec![
        case!(only_what_was_disturbed_is_tried_again),
        case!(only_what_others_have_sent_is_excused),
        case!(tests_are_chosen_by_name_and_tag),
        alone!(Totals: a_test_s_own_packets_are_no_excuse, Root, Netns),
    ]
}

/// The test's own packets are not taken for other traffic, so an excess in topstat's counts is a defect, and no reason to
/// repeat the test. Traffic of other processes is seen in every network namespace.
fn a_test_s_own_packets_are_no_excuse() {
    use std::time::Duration;
    let mut tally = Tally::new();
    let udp = Witness::new(Transport::Udp);
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    // Other programs of this host may have sent a few packets.
    let (own, others) = (tally.packets(), udp.others(tally.packets()));
    assert!(own > 1000 && others < own / 10, "{own} packets, and {others} of others");

    let ns = Netns::new("others");
    let tcp = Witness::new(Transport::Tcp);
    let mut other = Role::start("self-talk", &["tl-other", ns.path().to_str().expect("a path in UTF-8")]);
    other.tell("speak");
    other.expect("from");
    assert!(tcp.others(0) > 40, "others are not seen");
    assert!(tcp.others_opened(0) >= 2, "their connections are not seen");
}
