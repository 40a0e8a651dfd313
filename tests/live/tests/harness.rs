// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The harness itself: a test that is tried again must not be able to hide a defect.

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

/// What a test has sent itself is not taken for others' traffic; so what topstat counts too much is a defect, and no reason
/// to try again. Others' traffic is seen, in whatever network namespace it is.
fn a_test_s_own_packets_are_no_excuse() {
    use std::time::Duration;
    let mut tally = Tally::new();
    let udp = Witness::new(Transport::Udp);
    tally.during(|| std::thread::sleep(Duration::from_millis(200)));
    // Other programs of this host may have sent a few.
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
