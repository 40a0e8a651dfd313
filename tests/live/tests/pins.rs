// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is pinned outlives who pinned it, and the builds of its programs: nothing is lost or counted twice.

use topstat_live::truth;
use topstat_live::watch::everything;
use topstat_live::{Case, Nest, case, limits, note};
use topstat_load::{Config, Load, Plan};
use topstat_samples::pinned::{self, Adopted};

pub fn cases() -> Vec<Case> {
    vec![case!(found_replaced_and_removed, Root)]
}

const BYTES: &str = "tcp_v4/conns_bytes";

/// What is pinned is found, its programs are replaced by another build's, and it is gone when it is removed.
fn found_replaced_and_removed() {
    let nest = Nest::new("basics");
    assert!(pinned::open(&nest.pins, topstat_live::nest::inet()).unwrap().is_none());
    let mut load = Load::open(Config { connections: 10, ..Config::default() }).unwrap();
    load.run(&Plan::new(vec![1; 10]), &limits()).unwrap();
    let before = truth::settled(&load);
    let mut seen = Vec::new();
    for (build, expected) in
        [("", Adopted::Loaded), ("", Adopted::Found), ("other", Adopted::Upgraded), ("other", Adopted::Found)]
    {
        let (state, adopted) = nest.adopt_as(build, &[BYTES], &everything());
        assert_eq!(adopted, expected);
        let programs: Vec<_> = state.programs().into_iter().map(|p| p.id).collect();
        assert_eq!(programs.len(), 8);
        seen.push(programs);
        drop(state);
        load.run(&Plan::new(vec![10; 10]), &limits()).unwrap();
        let truth = truth::difference(&before, &truth::settled(&load));
        let view = nest.watch().snapshot(BYTES);
        for (key, counts) in truth {
            assert_eq!(view.get(key).value, counts.bytes(), "{adopted:?}");
        }
        note(format!("{adopted:?}: {}", view.summary()));
    }
    assert!(seen[0] == seen[1] && seen[2] == seen[3]);
    assert!(seen[0].iter().all(|id| !seen[2].contains(id)), "programs were to be replaced: {seen:?}");
    let removed = pinned::remove(&nest.pins).unwrap();
    note(format!("{removed:?}"));
}
