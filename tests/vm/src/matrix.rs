// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same commands on several kernels in several tiers, a few guests at a time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::deps::{self, Tools};
use crate::guest::Job;
use crate::kernel::{self, Kernel, Series};
use crate::klog::AllowList;
use crate::qemu::{Arch, Cgroup, Machine, Tier};
use crate::session::{self, Outcome, Plan, Session};
use crate::summary::Row;
use crate::watch::Stream;
use crate::{Unavailable, debug, root};

/// A kernel, and how to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The kernel.
    pub series: Series,
    /// The tier.
    pub tier: Tier,
}

/// All combinations of `series` and `tiers`. The debug tier has one kernel only, whatever the series.
///
/// The longest cells come first, so that the matrix does not wait for them at the end.
pub fn cells(series: &[Series], tiers: &[Tier]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &tier in tiers {
        let of_tier: &[Series] = if tier == Tier::Debug { &[debug::SERIES] } else { series };
        for &series in of_tier {
            let cell = Cell { series, tier };
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    add(&mut cells, &[]);
    cells
}

/// Adds cells that are missing, each at its place.
pub fn add(cells: &mut Vec<Cell>, more: &[Cell]) {
    for cell in more {
        if !cells.contains(cell) {
            cells.push(*cell);
        }
    }
    // The newest kernel, and the oldest with all samples, run most of the tests: see scripts/vm-suite. 5.10 runs fewer tests,
    // though its verifier processes four times as many instructions in each load of programs.
    let much = |cell: &Cell| match cell.series {
        Series::Newest => 3,
        Series::V6_1 => 2,
        Series::V5_10 => 1,
        _ => 0,
    };
    cells.sort_by_key(|cell| std::cmp::Reverse((cell.tier == Tier::Debug, much(cell), cell.tier.patience())));
}

/// The requested kernel, or the tier's default.
pub fn cell(series: Option<Series>, tier: Tier) -> Result<Cell> {
    let series = match (series, tier) {
        (Some(series), Tier::Debug) if series != debug::SERIES => {
            bail!("the debug tier has no kernel {series}: it is built from {} only; leave --kernel out", debug::SERIES)
        }
        (Some(series), _) => series,
        (None, Tier::Debug) => debug::SERIES,
        (None, _) => Series::V6_12,
    };
    Ok(Cell { series, tier })
}

/// The kernel of a cell: from the cache, fetched or built.
pub fn kernel_of(cache: &Cache, cell: Cell) -> Result<Kernel> {
    match cell.tier {
        Tier::Debug => debug::build(cache),
        tier => {
            let root = match tier.arch() {
                Arch::Amd64 => None,
                Arch::Arm64 => {
                    deps::check_arm64()?;
                    Some(root::fetch(cache, Arch::Arm64)?)
                }
            };
            Ok(Kernel { root, ..kernel::fetch(cache, cell.series, tier.flavour(), false)? })
        }
    }
}

/// The settings that all cells share.
#[derive(Debug)]
pub struct Matrix<'a> {
    /// Where kernels are.
    pub cache: &'a Cache,
    /// The programs to boot with.
    pub tools: &'a Tools,
    /// CPUs of a guest.
    pub cpus: u32,
    /// Memory of a guest.
    pub memory_mib: u32,
    /// Further arguments of the guests' kernels.
    pub append: &'a [String],
    /// Control groups of a guest.
    pub cgroup: Cgroup,
    /// The commands.
    pub jobs: &'a [Job],
    /// The names of the commands in the output.
    pub labels: &'a [String],
    /// The indices of the commands that share a guest, for each guest of a cell.
    pub groups: &'a [Vec<usize>],
    /// The time limit of each command.
    pub limit: Duration,
    /// Reports that are no failure.
    pub allow: &'a AllowList,
    /// The folder for logs and outputs, with a folder for each cell.
    pub out: Option<PathBuf>,
    /// Print the output of commands that passed, too.
    pub verbose: bool,
}

/// Runs each group of commands on all `cells`, `guests` at a time, and returns the rows in the order of groups and cells.
pub fn run(matrix: &Matrix<'_>, cells: &[Cell], guests: usize) -> Vec<Row> {
    let all: Vec<(&[usize], Cell)> =
        matrix.groups.iter().flat_map(|group| cells.iter().map(|&cell| (&**group, cell))).collect();
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..all.len()).collect());
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::new(Vec::new());
    // No code that may panic runs while the locks are held.
    let locked = |queue: &Mutex<VecDeque<usize>>| queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..guests.clamp(1, all.len().max(1)) {
            scope.spawn(|| {
                while let Some(index) = locked(&queue) {
                    let (group, cell) = all[index];
                    let row = run_cell(matrix, cell, group);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push((index, row));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn run_cell(matrix: &Matrix<'_>, cell: Cell, group: &[usize]) -> Row {
    let mut row = Row {
        series: cell.series.name().to_owned(),
        release: String::new(),
        tier: cell.tier.name(),
        commands: group.len(),
        session: Ok(Session::default()),
    };
    row.session = kernel_of(matrix.cache, cell)
        .and_then(|kernel| {
            row.release.clone_from(&kernel.release);
            run_on(matrix, cell, group, &kernel)
        })
        .map_err(|error| {
            let outcome = match error.downcast_ref::<Unavailable>() {
                Some(_) => Outcome::Skipped(format!("{error:#}")),
                None => Outcome::Crashed(format!("{error:#}")),
            };
            eprintln!("{}", no_guest(cell, &outcome));
            outcome
        });
    row
}

/// The line for a cell without a guest, which tests/gate reads.
fn no_guest(cell: Cell, outcome: &Outcome) -> String {
    let why = outcome.note();
    let why: Vec<_> = why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("--- {}-{}: {} {}", cell.series, cell.tier, outcome.word(), why.join("; "))
}

fn run_on(matrix: &Matrix<'_>, cell: Cell, group: &[usize], kernel: &Kernel) -> Result<Session> {
    let machine =
        Machine { tier: cell.tier, cpus: matrix.cpus, memory_mib: matrix.memory_mib, append: matrix.append.to_vec() };
    let name = format!("{}-{}", cell.series, cell.tier);
    // Two guests of a cell each have a kernel log.
    let folder = if group[0] == 0 { name.clone() } else { format!("{name}-{}", group[0]) };
    let jobs: Vec<Job> = group.iter().map(|&index| matrix.jobs[index].on(cell.series, cell.tier)).collect();
    let plan = Plan {
        tools: matrix.tools,
        kernel,
        machine: &machine,
        cgroup: matrix.cgroup,
        jobs: &jobs,
        limit: matrix.limit * cell.tier.patience(),
        allow: matrix.allow,
        out: matrix.out.as_ref().map(|out| out.join(folder)),
    };
    // Guests print at the same time, so the output of a command is collected, and shown when its guest is done.
    let mut printed: Vec<Vec<u8>> = vec![Vec::new(); jobs.len()];
    let mut session = session::run(&plan, &mut |index, _: Stream, bytes| printed[index].extend_from_slice(bytes))
        .with_context(|| format!("cannot run a guest of kernel {}", kernel.release))?;
    for judged in &mut session.judged {
        let output = &printed[judged.index];
        // From the index within the group to the index among all commands.
        judged.index = group[judged.index];
        let label = &matrix.labels[judged.index];
        let mut text = format!("--- {name}: {label}: {} {}\n", judged.outcome.word(), judged.outcome.note());
        if judged.outcome.is_failure() || matrix.verbose {
            text += &String::from_utf8_lossy(output);
        }
        for report in judged.reports.iter().filter(|report| report.allowed.is_none()) {
            text += &format!("{}\n", report.text);
        }
        eprint!("{text}");
    }
    let labels: Vec<_> = group.iter().map(|&index| matrix.labels[index].as_str()).collect();
    eprintln!("--- {name} took {:.0} s for {}", session.total.as_secs_f64(), labels.join(", "));
    Ok(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_tier_has_one_kernel_and_goes_first() {
        let cells = cells(&Series::ALL, &[Tier::Stock, Tier::Slub, Tier::Debug]);
        assert_eq!(cells.len(), 11);
        assert_eq!(cells[0], Cell { series: debug::SERIES, tier: Tier::Debug });
        assert_eq!(cells[10].tier, Tier::Stock);
    }

    #[test]
    fn what_takes_longest_goes_first() {
        let order: Vec<_> = cells(&Series::ALL, &[Tier::Stock]).iter().map(|cell| cell.series).collect();
        assert_eq!(order[..3], [Series::Newest, Series::V6_1, Series::V5_10]);
    }

    #[test]
    fn a_kernel_that_can_not_be_had_is_one_line() {
        let cell = Cell { series: Series::V5_10, tier: Tier::Stock };
        let why = "Debian's packages cannot be had:\n  E: no such host\n";
        assert_eq!(
            no_guest(cell, &Outcome::Skipped(why.into())),
            "--- 5.10-stock: skipped Debian's packages cannot be had:; E: no such host"
        );
        assert_eq!(no_guest(cell, &Outcome::Crashed("no boot".into())), "--- 5.10-stock: CRASHED no boot");
    }

    #[test]
    fn more_cells_take_their_places_once() {
        let slub = Cell { series: Series::V6_1, tier: Tier::Slub };
        let mut all = cells(&[Series::V6_1], &[Tier::Stock]);
        add(&mut all, &[slub, slub]);
        assert_eq!(all, [slub, Cell { series: Series::V6_1, tier: Tier::Stock }]);
        assert!(cell(Some(Series::V6_12), Tier::Debug).is_err());
    }
}
