// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of every snapshot, in one place.

use crate::snapshot::Snapshot;

/// A fault of a snapshot: always a mistake of the code that made it, never of the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Rows and `other` are not the total.
    #[error("rows add up to {rows} and other is {other}, but total is {total}")]
    Rows {
        /// The sum of the rows' values.
        rows: u128,
        /// The snapshot's `other`.
        other: u64,
        /// The snapshot's `total`.
        total: u64,
    },
    /// The CPUs' totals, with the part that they share, are not the total.
    #[error("the totals of {cpus} CPUs add up to {sum}, but total is {total}")]
    Cpus {
        /// The number of CPUs.
        cpus: usize,
        /// The sum of their totals.
        sum: u128,
        /// The snapshot's `total`.
        total: u64,
    },
    /// CPUs are not in ascending order, or a CPU is there twice.
    #[error("cpu {0} stands twice or out of order")]
    CpuOrder(u32),
    /// Rows are not ordered by value, or their ranks do not ascend from 1.
    #[error("the row of rank {0} stands out of order")]
    Order(u32),
    /// The number of fields of an object differs from the number of columns, or the number of parts of a row from the number of
    /// names.
    #[error("an object has {fields} fields and {parts} parts, but there are {columns} columns and {part_names} parts")]
    Shape {
        /// The number of fields of the object.
        fields: usize,
        /// The number of parts of the row.
        parts: usize,
        /// The number of columns of the snapshot.
        columns: usize,
        /// The number of parts that the snapshot names.
        part_names: usize,
    },
    /// `proven` is larger than the number of rows.
    #[error("{proven} rows are said to be proven, but there are {rows}")]
    Proven {
        /// The snapshot's `proven`.
        proven: u32,
        /// The number of rows.
        rows: u32,
    },
}

impl Snapshot {
    /// Whether rows and `other` add up to the total, and the CPUs' totals too.
    pub fn is_additive(&self) -> bool {
        self.check_sums().is_ok()
    }

    /// Verifies everything that writers and readers rely on: the sums, the order of rows and CPUs, and that every object has a
    /// field for each column.
    ///
    /// # Errors
    ///
    /// The first [`Fault`] found. Writers do not check: they write a bad snapshot as it is, and do not panic.
    pub fn check(&self) -> Result<(), Fault> {
        self.check_sums()?;
        self.check_shape()?;
        self.check_order()
    }

    /// Sets `other` to the part of the total that is in no row, as a sample does after it has set rows and total.
    ///
    /// # Errors
    ///
    /// [`Fault::Rows`], with `other` 0, where the rows are larger than the total.
    pub fn settle(&mut self) -> Result<(), Fault> {
        let rows = self.sum_of_rows();
        match u64::try_from(rows).ok().and_then(|rows| self.total.checked_sub(rows)) {
            Some(other) => {
                self.other = other;
                Ok(())
            }
            None => {
                self.other = 0;
                Err(Fault::Rows { rows, other: 0, total: self.total })
            }
        }
    }

    // Sums have 128 bits, so that they cannot wrap and then agree by chance.

    fn sum_of_rows(&self) -> u128 {
        self.rows.iter().map(|row| u128::from(row.value)).sum()
    }

    /// Verifies the sums alone.
    ///
    /// # Errors
    ///
    /// [`Fault::Rows`] and [`Fault::Cpus`].
    pub fn check_sums(&self) -> Result<(), Fault> {
        let (other, total) = (self.other, self.total);
        let rows = self.sum_of_rows();
        if rows + u128::from(other) != u128::from(total) {
            return Err(Fault::Rows { rows, other, total });
        }
        let of_cpus: u128 = self.cpus.iter().map(|section| u128::from(section.total)).sum();
        let sum = of_cpus + u128::from(self.shared);
        if sum != u128::from(total) {
            return Err(Fault::Cpus { cpus: self.cpus.len(), sum, total });
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), Fault> {
        let (columns, part_names) = (self.columns.len(), self.parts.len());
        let of_all = self.rows.iter().map(|row| (row.object.len(), row.parts.len()));
        let of_cpus = self.cpus.iter().flat_map(|section| &section.rows);
        for (fields, parts) in of_all.chain(of_cpus.map(|row| (row.object.len(), part_names))) {
            if fields != columns || parts != part_names {
                return Err(Fault::Shape { fields, parts, columns, part_names });
            }
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), Fault> {
        if let Some(row) = self.rows.first().filter(|row| row.rank == 0) {
            return Err(Fault::Order(row.rank));
        }
        for (above, row) in self.rows.iter().zip(self.rows.iter().skip(1)) {
            if above.rank >= row.rank || above.value < row.value {
                return Err(Fault::Order(row.rank));
            }
        }
        for (before, section) in self.cpus.iter().zip(self.cpus.iter().skip(1)) {
            if before.cpu >= section.cpu {
                return Err(Fault::CpuOrder(section.cpu));
            }
        }
        let (proven, rows) = (self.proven, self.row_count());
        if proven > rows {
            return Err(Fault::Proven { proven, rows });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::{CpuSection, Lost, Row, Settings, TableType, Unit};

    fn snapshot(values: &[u64], total: u64) -> Snapshot {
        let rows = (1..).zip(values).map(|(rank, &value)| Row {
            id: [rank.into(), 0],
            rank,
            value,
            object: vec![],
            parts: vec![],
            cpus: vec![0],
        });
        let rows: Vec<_> = rows.collect();
        Snapshot {
            time: UNIX_EPOCH,
            sample: "s".into(),
            table: "t".into(),
            kind: TableType::Static,
            unit: Unit::Count,
            value_name: "count".into(),
            period_ms: 1000,
            delay_ms: 0,
            elapsed: None,
            top: 128,
            objects: 9,
            total,
            shared: 0,
            other: 0,
            proven: 0,
            filter: None,
            lost: Lost::default(),
            lost_now: Lost::default(),
            settings: Settings { enabled: true, owner: "s".into(), owner_enabled: true, topstat_enabled: true },
            columns: vec![],
            parts: vec![],
            rows,
            cpus: vec![CpuSection { cpu: 0, total, stale: false, rows: vec![] }],
        }
    }

    #[test]
    fn settling_gives_other_the_rest() {
        let mut snapshot = snapshot(&[5, 3], 10);
        assert!(!snapshot.is_additive());
        assert_eq!(snapshot.settle(), Ok(()));
        assert_eq!(snapshot.other, 2);
        assert_eq!(snapshot.check(), Ok(()));
    }

    #[test]
    fn what_cpus_share_is_of_no_cpu() {
        let shared = Snapshot { shared: 3, ..snapshot(&[5, 3], 8) };
        assert_eq!(shared.check(), Err(Fault::Cpus { cpus: 1, sum: 11, total: 8 }));
        let cpus = vec![CpuSection { cpu: 0, total: 5, stale: false, rows: vec![] }];
        assert_eq!(Snapshot { cpus, ..shared }.check(), Ok(()));
    }

    #[test]
    fn rows_beyond_the_total_are_a_fault() {
        let mut more = snapshot(&[5, 3], 7);
        let error = more.settle().unwrap_err();
        assert_eq!(error.to_string(), "rows add up to 8 and other is 0, but total is 7");
        // Wrapped to 64 bits, these rows would be 0.
        assert!(!snapshot(&[u64::MAX, 1], 0).is_additive());
    }

    #[test]
    fn each_fault_is_found() {
        let good = snapshot(&[5, 3], 8);
        assert_eq!(good.check(), Ok(()));
        let fault = |spoil: fn(&mut Snapshot)| {
            let mut bad = good.clone();
            spoil(&mut bad);
            bad.check().unwrap_err()
        };
        assert_eq!(fault(|s| s.cpus.clear()), Fault::Cpus { cpus: 0, sum: 0, total: 8 });
        assert_eq!(fault(|s| s.rows.swap(0, 1)), Fault::Order(1));
        assert_eq!(fault(|s| s.rows[0].rank = 0), Fault::Order(0));
        assert_eq!(fault(|s| s.proven = 3), Fault::Proven { proven: 3, rows: 2 });
        assert_eq!(
            fault(|s| s.rows[1].parts = vec![1]),
            Fault::Shape { fields: 0, parts: 1, columns: 0, part_names: 0 }
        );
        assert_eq!(
            fault(|s| {
                let again = CpuSection { total: 0, ..s.cpus[0].clone() };
                s.cpus.push(again);
            }),
            Fault::CpuOrder(0)
        );
    }
}
