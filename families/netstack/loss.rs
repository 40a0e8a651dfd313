// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drops packets that arrive at a device, at random, for as long as the object lives: for experiments.

use libbpf_rs::{Link, MapCore as _, MapFlags, Object};

use super::abi;
use topstat_kernel::{Error, bpf};

const OBJECT: &[u8] = object!("netstack/loss.bpf.o");

/// The attached program, and its counts.
pub struct Loss {
    _link: Link,
    object: Object,
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets that have arrived.
    pub seen: u64,
    /// Packets of these that were dropped.
    pub dropped: u64,
}

impl Loss {
    /// Drops this percentage of the packets that arrive at a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the percentage is out of range, or the kernel or the device does not allow it.
    pub fn attach(device: &str, percent: f64) -> Result<Self, Error> {
        if !(0.0..=100.0).contains(&percent) {
            return Err(Error::Option(format!("{percent} is no share of packets in percent")));
        }
        let failed = |why: String| Error::Kernel { what: format!("lose packets of {device}"), why };
        let index = super::device_index(device).map_err(|e| failed(e.to_string()))?;
        let mut object = bpf::open("loss", OBJECT)?;
        let constants = abi::netstack_loss { below: below(percent) };
        bpf::set_constants(&mut object, ".rodata.loss", bpf::as_bytes(&constants))?;
        let object = bpf::load("loss", object)?;
        let index = i32::try_from(index).map_err(|e| failed(e.to_string()))?;
        let attached = bpf::program(&object, "netstack_lose")?.attach_xdp(index);
        Ok(Self { _link: attached.map_err(|e| failed(format!("{e:#}")))?, object })
    }

    /// The counts of packets so far.
    ///
    /// # Errors
    /// When the kernel does not give them.
    pub fn lost(&self) -> Result<Lost, Error> {
        let failed = |why: String| Error::Kernel { what: "count lost packets".to_owned(), why };
        let values = bpf::map(&self.object, "dropped")?.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let mut lost = Lost::default();
        for bytes in values.map_err(|e| failed(format!("{e:#}")))?.unwrap_or_default() {
            let count: abi::netstack_dropped = bpf::from_bytes(&bytes);
            lost.seen += count.seen;
            lost.dropped += count.dropped;
        }
        Ok(lost)
    }
}

/// Loads the program.
///
/// # Errors
/// The kernel's error.
pub fn try_load() -> Result<(), Error> {
    bpf::load("loss", bpf::open("loss", OBJECT)?).map(drop)
}

/// The number below which this share of all 32-bit numbers lies.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float is clamped into the range")]
fn below(percent: f64) -> u32 {
    (percent / 100.0 * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn a_share_is_a_part_of_all_numbers() {
        assert_eq!((below(0.0), below(50.0), below(100.0)), (0, 1 << 31, u32::MAX));
        assert_eq!(below(1.5), 64_424_509);
    }
}
