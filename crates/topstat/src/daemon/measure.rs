// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often the programs run, and for how long: the kernel counts this for a while.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use topstat_kernel::cost::{Enabled, Meter, Runs};
use topstat_kernel::{Error, State};

use super::budget::Measured;
use super::caps;
use topstat_model::rfc3339;

/// The measurement of one window, as `self` shows it. The time that the kernel's reading of the clock adds to each run is
/// subtracted.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    pub time: String,
    pub seconds: f64,
    pub cpus: u32,
    pub runs: u64,
    pub ns_per_run: Option<f64>,
    /// The time that was subtracted from each run.
    pub empty_run_ns: f64,
    /// The average share of each CPU: 0 to 1.
    pub share: f64,
    pub programs: Vec<Program>,
    #[serde(skip)]
    pub taken: Instant,
    /// The measurement for the budget.
    #[serde(skip)]
    pub all: Measured,
    #[serde(skip)]
    pub map_bytes: u64,
    #[serde(skip)]
    pub object_bytes: u64,
}

/// The measurement of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    pub name: String,
    pub id: u32,
    pub hook: String,
    pub runs: u64,
    pub ns_per_run: Option<f64>,
    pub share: f64,
}

impl Measurement {
    /// Makes a measurement from the runs of each program within `elapsed`. The bytes of memory are not known yet.
    pub fn new<'p>(
        at: SystemTime,
        elapsed: Duration,
        cpus: u32,
        empty_run_ns: f64,
        programs: impl Iterator<Item = (&'p topstat_kernel::Program, Runs)>,
    ) -> Self {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let mut all = Measured { cost_ns: 0, runs: 0, elapsed_ns, cpus };
        let programs = programs
            .map(|(program, runs)| {
                let own = Measured { cost_ns: cost_ns(&runs, empty_run_ns), runs: runs.count, ..all };
                (all.cost_ns, all.runs) = (all.cost_ns + own.cost_ns, all.runs + own.runs);
                let (name, share) = (program.name.clone(), own.share());
                Program {
                    name,
                    id: program.id,
                    hook: program.hook.clone(),
                    runs: own.runs,
                    ns_per_run: own.ns_per_run(),
                    share,
                }
            })
            .collect();
        Self {
            time: rfc3339(at),
            seconds: elapsed.as_secs_f64(),
            cpus,
            runs: all.runs,
            ns_per_run: all.ns_per_run(),
            empty_run_ns,
            share: all.share(),
            programs,
            taken: Instant::now(),
            all,
            map_bytes: 0,
            object_bytes: 0,
        }
    }
}

/// The time of these runs, without the time that measuring has added.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is an estimate
fn cost_ns(runs: &Runs, empty_run_ns: f64) -> u64 {
    (runs.time_ns as f64 - runs.count as f64 * empty_run_ns).max(0.0) as u64
}

/// Measures the programs of these states.
pub struct Gauge {
    states: Vec<Arc<dyn State>>,
    /// Opened at the first use, and again after a failure.
    meter: Option<Meter>,
}

/// A time in which the kernel counts.
pub struct Window {
    meter: Meter,
    before: Vec<Runs>,
    begun: Instant,
    _enabled: Enabled,
}

impl Gauge {
    /// A gauge of these states.
    pub fn new(states: Vec<Arc<dyn State>>) -> Self {
        Self { states, meter: None }
    }

    /// Makes the kernel begin to count.
    pub fn begin(&mut self) -> Result<Window, Error> {
        let meter = match self.meter.take() {
            Some(meter) => meter,
            None => {
                let programs = self.states.iter().flat_map(|state| state.programs()).collect();
                caps::raised(|| Meter::open(programs))?
            }
        };
        let enabled = caps::raised(topstat_kernel::cost::enable)?;
        let begun = Instant::now();
        Ok(Window { before: meter.read()?, meter, begun, _enabled: enabled })
    }

    /// Ends a window, and returns its measurement.
    pub fn end(&mut self, window: Window) -> Result<Measurement, Error> {
        let Window { meter, before, begun, _enabled } = window;
        let (elapsed, after) = (begun.elapsed(), meter.read()?);
        drop(_enabled);
        let since = |(after, before): (&Runs, &Runs)| Runs {
            time_ns: after.time_ns.saturating_sub(before.time_ns),
            count: after.count.saturating_sub(before.count),
        };
        let programs = meter.programs().zip(after.iter().zip(&before).map(since));
        let measured = Measurement::new(SystemTime::now(), elapsed, online_cpus(), meter.empty_run_ns(), programs);
        let measured = Measurement { map_bytes: meter.map_bytes()?, object_bytes: meter.storage_bytes(), ..measured };
        self.meter = Some(meter);
        Ok(measured)
    }
}

/// The number of online CPUs, including CPUs that this process may not use.
fn online_cpus() -> u32 {
    let cpus = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    cpus.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(1).max(1)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A second in which two programs took 30 and 20 ns a run, after the 10 ns that measuring added to each run are subtracted.
    pub fn second(at: SystemTime) -> Measurement {
        let program = |name: &str, id, hook: &str| {
            let (name, hook) = (name.to_owned(), hook.to_owned());
            topstat_kernel::Program { name, id, hook }
        };
        let programs = [
            (program("inet_ingress", 7, "cgroup ingress"), Runs { time_ns: 8_000_000, count: 200_000 }),
            (program("inet_egress", 8, "cgroup egress"), Runs { time_ns: 3_000_000, count: 100_000 }),
        ];
        let programs = programs.iter().map(|(program, runs)| (program, *runs));
        let measured = Measurement::new(at, Duration::from_secs(1), 2, 10.0, programs);
        Measurement { map_bytes: 582_112, object_bytes: 888, ..measured }
    }

    #[test]
    fn what_measuring_adds_is_taken_off() {
        let second = second(SystemTime::UNIX_EPOCH);
        assert_eq!((second.all.cost_ns, second.all.runs, second.runs), (8_000_000, 300_000, 300_000));
        assert!((second.share - 0.004).abs() < 1e-9);
        // A run that was shorter than the time of measuring gives no negative cost.
        assert_eq!(cost_ns(&Runs { time_ns: 10, count: 5 }, 10.0), 0);
    }
}
