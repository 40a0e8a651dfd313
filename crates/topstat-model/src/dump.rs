// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table as it is in memory, for debugging: the contents of the `dump` file. The read is not synchronised: pushes go on.
//!
//! ```text
//! name<TAB>conns_pps
//! …                                the header of `stat`
//! slide<TAB>25                     ticks of the table's clock
//! now<TAB>4295012345
//! objects<TAB>5000
//! entries<TAB>256
//! unkept<TAB>17                    rows of closed objects that made way for larger ones, where these rows are kept
//! lost contended<TAB>0             every counter, also those that are 0
//!
//! cpu 0:
//! slots<TAB>0000000000000007       the bitmap, 64 slots to a word, the first word first
//! slot<TAB>value<TAB>time<TAB>count<TAB>sip<TAB>sport …
//! 0<TAB>990<TAB>4295012300<TAB>17<TAB>10.0.0.1<TAB>80 …
//! ```

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use crate::field::{Column, Field};
use crate::snapshot::{Lost, Settings, TableType};
use crate::stat;
use crate::typeset::escape;

/// One slot that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpSlot {
    /// Its number.
    pub index: u32,
    /// The value that its object is ordered by.
    pub value: u64,
    /// The time of the latest push on this CPU, in ticks.
    pub time: u64,
    /// The number of times that it was ordered on this CPU.
    pub count: u64,
    /// The description of the object: one field for each of [`Dump::columns`].
    pub object: Vec<Field>,
}

/// The table of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpCpu {
    /// The CPU's number.
    pub cpu: u32,
    /// The slots that are in use, ascending.
    pub slots: Vec<DumpSlot>,
}

/// A dump: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The table in its sample.
    pub table: String,
    /// Dynamic or static.
    pub kind: TableType,
    /// The title of the value's column.
    pub value_name: String,
    /// The period in ms.
    pub period_ms: u32,
    /// The delay in ms.
    pub delay_ms: u32,
    /// The switches, and the owner of the table.
    pub settings: Settings,
    /// The length of a slide, in ticks of the table's clock (jiffies or nanoseconds).
    pub ticks_per_slide: u64,
    /// The time of the read, in ticks.
    pub now: u64,
    /// The number of objects.
    pub objects: u64,
    /// The number of slots of a table.
    pub entries: u32,
    /// The number of ended objects, since the table was made, whose row made way for a larger one before it had aged out, or
    /// found no room. `None` if the table does not keep ended objects.
    pub unkept: Option<u64>,
    /// The losses.
    pub lost: Lost,
    /// The columns that describe an object.
    pub columns: Vec<Column>,
    /// Every CPU that has counted, ascending by number.
    pub cpus: Vec<DumpCpu>,
}

/// Slots to a word of the bitmap.
const WORD: u32 = u64::BITS;

impl DumpCpu {
    /// The slots that are in use: bit `i % 64` of word `i / 64` is slot `i`.
    pub fn bitmap(&self, entries: u32) -> Vec<u64> {
        let mut words = vec![0; entries.div_ceil(WORD) as usize];
        for slot in &self.slots {
            if let Some(word) = words.get_mut((slot.index / WORD) as usize) {
                *word |= 1 << (slot.index % WORD);
            }
        }
        words
    }
}

/// Writes the table as the `dump` file, with a single call of `write_all`.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(dump: &Dump, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut text = String::new();
    format(dump, &mut text).expect("a String takes all");
    out.write_all(text.as_bytes())
}

fn format(dump: &Dump, text: &mut String) -> fmt::Result {
    stat::header(&dump.table, dump.kind, dump.delay_ms, dump.period_ms, &dump.settings, text)?;
    stat::line(text, "slide", dump.ticks_per_slide)?;
    stat::line(text, "now", dump.now)?;
    stat::line(text, "objects", dump.objects)?;
    stat::line(text, "entries", dump.entries)?;
    if let Some(unkept) = dump.unkept {
        stat::line(text, "unkept", unkept)?;
    }
    for (name, count) in dump.lost.counters() {
        stat::line(text, &format!("lost {name}"), count)?;
    }
    for cpu in &dump.cpus {
        let words: Vec<_> = cpu.bitmap(dump.entries).iter().map(|word| format!("{word:016x}")).collect();
        writeln!(text, "\ncpu {}:", cpu.cpu)?;
        stat::line(text, "slots", words.join(" "))?;
        write!(text, "slot\tvalue\ttime\tcount")?;
        for column in &dump.columns {
            write!(text, "\t{}", escape(&column.name))?;
        }
        text.push('\n');
        for slot in &cpu.slots {
            write!(text, "{}\t{}\t{}\t{}", slot.index, slot.value, slot.time, slot.count)?;
            for field in &slot.object {
                write!(text, "\t{field}")?;
            }
            text.push('\n');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::ColumnKind;

    #[test]
    fn a_dump_has_every_slot_and_every_counter() {
        let slot =
            |index, value| DumpSlot { index, value, time: 4_295_012_300, count: 17, object: vec!["a\tb".into()] };
        let dump = Dump {
            table: "conns_pps".to_owned(),
            kind: TableType::Dynamic,
            value_name: "pps".to_owned(),
            period_ms: 1000,
            delay_ms: 10,
            settings: Settings {
                enabled: true,
                owner: "tcp_v4".to_owned(),
                owner_enabled: false,
                topstat_enabled: true,
            },
            ticks_per_slide: 25,
            now: 4_295_012_345,
            objects: 2,
            entries: 128,
            unkept: Some(17),
            lost: Lost { contended: 3, no_memory: 0, further: vec![("crowded".into(), 0)] },
            columns: vec![Column::new("comm", ColumnKind::Text)],
            cpus: vec![DumpCpu { cpu: 1, slots: vec![slot(0, 990), slot(66, 5)] }],
        };
        let mut text = Vec::new();
        write(&dump, &mut text).unwrap();
        let expected = "name\tconns_pps\ntype\t1\ndelay\t10\nperiod\t1000\nenabled\t1\nowner\ttcp_v4\nowner enabled\t0\n\
            topstat enabled\t1\nslide\t25\nnow\t4295012345\nobjects\t2\nentries\t128\nunkept\t17\nlost contended\t3\n\
            lost no_memory\t0\nlost crowded\t0\n\ncpu 1:\nslots\t0000000000000001 0000000000000004\n\
            slot\tvalue\ttime\tcount\tcomm\n0\t990\t4295012300\t17\ta\\x09b\n66\t5\t4295012300\t17\ta\\x09b\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
