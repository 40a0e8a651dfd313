// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fuzzer's operations, from random bytes. tests/fuzz runs its corpus.

use crate::driver::Driver;
use crate::ops::decode;

/// `length` random bytes, which depend on the seed alone (xorshift64*).
fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn run(bytes: &[u8]) {
    let (setup, ops) = decode(bytes);
    Driver::run(&setup, &ops);
}

#[test]
fn random_bytes() {
    for seed in 0..1500u64 {
        println!("seed {seed}");
        run(&random(seed, 64 << (seed % 6)));
    }
}
