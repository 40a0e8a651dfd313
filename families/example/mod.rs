// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sample of docs/adding-a-sample.md: signals, by their number. Its tests add it; no program lists it.

abi!("example");

use std::mem::{offset_of, size_of};

use topstat_model::Reach::Spanning;
use topstat_model::{ColumnKind, Unit};

use topstat_kernel::family::{Build, Builds, Constant, Constants, Family, FieldAt, Objects, Ranked, Refill, RowColumn};
use topstat_kernel::hooks::Hook;
use topstat_kernel::{SampleInfo, TableInfo};

/// The family. If this function were named `family`, all programs would list it.
pub fn unlisted() -> Family {
    let build = Build {
        maps: vec!["buckets"],
        ..Build::new(
            object!("example/example.bpf.o"),
            object!("example/snapshot.bpf.o"),
            vec![Hook::tracepoint("example_signal", "signal_generate").losing()],
            |object, maps, _| Refill::over_places(object, &maps.objects, "example_refill"),
        )
    };
    let jiffy_ns = (offset_of!(abi::example_constants, jiffy_ns), Constant::JiffyNs);
    let constants = Constants::new(size_of::<abi::example_constants>(), [jiffy_ns]);
    let ranked =
        Ranked { full: true, ..Ranked::new::<abi::example_section, abi::example_row>(Builds::one(build), constants) };
    let signal = RowColumn::new("signal", ColumnKind::Id, FieldAt::U64(offset_of!(abi::example_row, signal)));
    let sent = TableInfo::dynamic(abi::EXAMPLE_SENT, "sent", Unit::Count, "signals", "signals sent, per period");
    let sample = SampleInfo::new("signals", "signals, by their number", Objects::Keyed, vec![signal], [sent]);
    Family::ranked("example", abi::EXAMPLE_ABI, (6, 1), [sample.keyed(Spanning, &["signal"])], ranked)
}
