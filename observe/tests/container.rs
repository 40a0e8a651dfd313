// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rule by which the kernel module finds a control group's container is the daemon's.

use proptest::prelude::*;
use topstat_observe::container;

/// Paths of the words that decide, with and without ids.
fn paths() -> impl Strategy<Value = String> {
    const WORDS: [&str; 40] = [
        "docker",
        "lxc",
        "kubepods",
        "burstable",
        "besteffort",
        "pod1",
        "podU_I-D",
        "pod",
        "kubepods.slice",
        "a-kubepods-burstable-pod1.slice",
        "kubepods-pod.slice",
        "ID",
        "docker-ID",
        "docker-ID.scope",
        "x-ID.scope",
        "x-ID",
        "-ID",
        "crio-conmon-ID.scope",
        "lxc.payload.web",
        "lxc.payload.",
        "lxc.monitor.web",
        "kubepods-pod1.slice:crio:ID",
        "a.slice:b:ID",
        "x:crio:ID",
        "libpod_parent",
        "libpod-ID.scope",
        "machine-libpod_pod_ID.slice",
        "machine.slice",
        "user.slice",
        "user-1000.slice",
        "user-x.slice",
        "user@1000.service",
        "docker.service",
        "web.service",
        "_docker.service",
        "_x",
        ".slice",
        "init.scope",
        "var.mount",
        "",
    ];
    let word = prop::sample::select(WORDS.to_vec());
    // A half of an id is none.
    let word = (word, prop::bool::weighted(0.9))
        .prop_map(|(word, whole)| word.replace("ID", &"0123456789abcdef".repeat(if whole { 4 } else { 2 })));
    prop::collection::vec(word, 0..7).prop_map(|words| words.iter().fold(String::new(), |path, word| path + "/" + word))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn the_kernel_module_finds_the_containers_that_the_daemon_finds(path in paths()) {
        prop_assert_eq!(container(&path), topstat_model::names::container(&path));
    }
}
