// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several tables as one ranking.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::snapshot::{CpuSection, Lost, Row, Settings, Snapshot};

impl Snapshot {
    /// Merges readings of tables that have no object in common, such as `tcp_v4/conns_bps` and `tcp_v6/conns_bps`, into one ranking
    /// with this name of its sample. A single reading stays unchanged.
    ///
    /// The merged ranking has as many rows as the longest of the tables keeps, and [`time`](Self::time) is the latest of the times.
    ///
    /// # Errors
    ///
    /// The readings, unchanged, if the list is empty, or if their values or objects can't be compared: if kinds, units, periods,
    /// switches, columns or parts differ.
    pub fn merged(sample: &str, mut of: Vec<Self>) -> Result<Self, Vec<Self>> {
        if !of.first().is_some_and(|first| of.iter().all(|other| first.is_comparable(other))) {
            return Err(of);
        }
        let bound = of.iter().map(Self::most_unseen).max().flatten();
        let mut all = of.remove(0);
        if of.is_empty() {
            return Ok(all);
        }
        sample.clone_into(&mut all.sample);
        sample.clone_into(&mut all.settings.owner);
        let mut rows: Vec<(Row, bool)> = all.with_proofs();
        for mut other in of {
            rows.extend(other.with_proofs());
            all.add(other);
        }
        // The sort is stable: rows of equal value stay in the order of the tables.
        rows.sort_by_key(|(row, _)| Reverse(row.value));
        let is_proven = |(row, proven): &&(Row, bool)| *proven && bound.is_none_or(|bound| row.value >= bound);
        all.proven = u32::try_from(rows.iter().take_while(is_proven).count()).unwrap_or(u32::MAX);
        all.rows = rows.into_iter().map(|(row, _)| row).collect();
        for (rank, row) in (1..).zip(&mut all.rows) {
            row.rank = rank;
        }
        let top = all.top as usize;
        all.truncate(top);
        Ok(all)
    }

    fn is_comparable(&self, other: &Self) -> bool {
        let of = |snapshot: &Self| {
            let Settings { enabled, owner_enabled, topstat_enabled, .. } = snapshot.settings;
            (snapshot.kind, snapshot.unit, snapshot.period_ms, enabled, owner_enabled, topstat_enabled)
        };
        of(self) == of(other)
            && (&self.table, &self.value_name, &self.columns, &self.parts, &self.filter)
                == (&other.table, &other.value_name, &other.columns, &other.parts, &other.filter)
    }

    /// The bound of an object that has no row or an unproven one: the value of the last proven row. `Some(u64::MAX)`: there is no
    /// such row. `None`: all that was counted is in proven rows.
    fn most_unseen(&self) -> Option<u64> {
        if self.other == 0 && self.is_proven() {
            return None;
        }
        let last = self.proven.checked_sub(1).and_then(|last| self.rows.get(last as usize));
        Some(last.map_or(u64::MAX, |row| row.value))
    }

    /// Takes the rows out, each with whether it is proven.
    fn with_proofs(&mut self) -> Vec<(Row, bool)> {
        let proven = self.proven as usize;
        std::mem::take(&mut self.rows).into_iter().enumerate().map(|(place, row)| (row, place < proven)).collect()
    }

    /// Adds everything of another table but its rows.
    fn add(&mut self, other: Self) {
        self.time = self.time.max(other.time);
        self.delay_ms = self.delay_ms.max(other.delay_ms);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.top = self.top.max(other.top);
        for (sum, more) in [
            (&mut self.objects, other.objects),
            (&mut self.total, other.total),
            (&mut self.shared, other.shared),
            (&mut self.other, other.other),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.lost.add(&other.lost);
        self.lost_now.add(&other.lost_now);
        let mut cpus: BTreeMap<u32, CpuSection> =
            std::mem::take(&mut self.cpus).into_iter().map(|on| (on.cpu, on)).collect();
        for more in other.cpus {
            match cpus.get_mut(&more.cpu) {
                Some(on) => {
                    on.total = on.total.saturating_add(more.total);
                    on.stale |= more.stale;
                    on.rows.extend(more.rows);
                    on.rows.sort_by_key(|row| Reverse(row.value));
                }
                None => drop(cpus.insert(more.cpu, more)),
            }
        }
        self.cpus = cpus.into_values().collect();
    }
}

impl Lost {
    fn add(&mut self, more: &Self) {
        self.contended = self.contended.saturating_add(more.contended);
        self.no_memory = self.no_memory.saturating_add(more.no_memory);
        for (name, count) in &more.further {
            match self.further.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(*count),
                None => self.further.push((name.clone(), *count)),
            }
        }
    }
}
