// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures one variant under one configuration: throughput with CPU time, and, in a run of its own, where the time goes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use procfs::process::Stat;
use topstat_kernel::netstack::{Chosen, Counter, Loss, Lost};
use topstat_model::histograms::{Histogram, Histograms, Subject};
use topstat_model::stacks::{Category, Choice, Profile, Side, Table};

use super::host::{Configuration, DEVICE, End, Host, Trouble};
use super::plan::Variant;
use super::results::{Classified, Run};
use super::traffic::{self, Moved, Sockets, Sum};
use crate::backend::Profiling;

/// How long flows run before anything is measured: until windows and buffers have grown.
const WARM_UP: Duration = Duration::from_millis(500);

/// What is the same for all runs.
pub struct Measure<'a> {
    /// How long each of both runs is measured.
    pub time: Duration,
    /// What all sockets are set to.
    pub congestion: Option<String>,
    /// Whether histograms are made, too.
    pub histograms: bool,
    /// Makes what samples; none: nothing is sampled.
    pub sampler: Option<&'a mut dyn FnMut() -> Result<Box<dyn Profiling>, String>>,
    /// Waits; `Err`: the user wants the program to end.
    pub wait: &'a mut dyn FnMut(Instant) -> Result<(), String>,
}

impl Measure<'_> {
    /// Both runs, in namespaces of their own.
    ///
    /// # Errors
    ///
    /// See [`Trouble`].
    pub fn run(&mut self, configuration: &Configuration, variant: &Variant, number: u32) -> Result<Run, Trouble> {
        let named = Run {
            configuration: configuration.name.to_owned(),
            variant: variant.name.clone(),
            run: number,
            ..Run::default()
        };
        if let Some(why) = &variant.unavailable {
            return Err(Trouble::Unavailable(why.clone()));
        }
        let host = Host::new(configuration)?;
        let congestion = traffic::congestion(&host, self.congestion.as_deref()).map_err(Trouble::Failed)?;
        let named = Run { congestion, ..named };
        // It is attached while the thread is in the namespace that the device is in.
        let loss = if variant.loss > 0.0 {
            let attach = || Loss::attach(DEVICE, variant.loss).map_err(|e| Trouble::Unavailable(e.to_string()));
            Some(host.inside(End::Right, attach)?)
        } else {
            None
        };
        let sockets = Sockets { buffer: variant.buffer, congestion: self.congestion.clone() };
        let run = traffic::run(&host, &variant.flows, &sockets, |moved| self.throughput(moved, loss.as_ref(), named));
        let mut run = run.map_err(Trouble::Failed)?;
        if self.sampler.is_some() {
            let profile = traffic::run(&host, &variant.flows, &sockets, |_| self.sample()).map_err(Trouble::Failed)?;
            run.sides = by_side(&profile, &counted());
            run.samples_lost = profile.besides.lost;
            let table = Table::of(&profile, &Choice { pids: counted(), ..Choice::default() });
            run.classified = Classified { samples: table.chosen, by_name: table.by_name, by_caller: table.by_caller };
        }
        if self.histograms {
            let read = traffic::run(&host, &variant.flows, &sockets, |_| self.count(&host)).map_err(Trouble::Failed)?;
            for histograms in read {
                let named = |(name, histogram): (&str, Histogram)| (name.to_owned(), histogram);
                run.histograms.extend(histograms.series.into_iter().map(named));
                for (name, count) in histograms.besides {
                    *run.besides.entry(name.to_owned()).or_default() += count;
                }
            }
        }
        Ok(run)
    }

    fn throughput(&mut self, moved: &Moved, loss: Option<&Loss>, run: Run) -> Result<Run, String> {
        let lost = || loss.map_or(Ok(Lost::default()), Loss::lost).map_err(|e| e.to_string());
        (self.wait)(Instant::now() + WARM_UP)?;
        let (begun, before, softirqs, lost_before) = (Instant::now(), moved.sum(), ksoftirqd(), lost()?);
        (self.wait)(begun + self.time)?;
        let (after, elapsed, lost_after) = (moved.sum(), begun.elapsed(), lost()?);
        let seconds = |part: fn(&Sum) -> u64| Duration::from_nanos(part(&after) - part(&before)).as_secs_f64();
        Ok(Run {
            seconds: elapsed.as_secs_f64(),
            bytes: after.received - before.received,
            responses: after.responses - before.responses,
            sender_seconds: seconds(|sum| sum.sender_ns),
            receiver_seconds: seconds(|sum| sum.receiver_ns),
            ksoftirqd_seconds: (ksoftirqd() - softirqs).max(0.0),
            arrived: lost_after.seen - lost_before.seen,
            dropped: lost_after.dropped - lost_before.dropped,
            ..run
        })
    }

    /// What arrives at the receiver's device, and what is copied to this process.
    fn count(&mut self, host: &Host) -> Result<[Histograms; 2], String> {
        (self.wait)(Instant::now() + WARM_UP)?;
        let device = Chosen { device: Some(DEVICE.to_owned()), ..Chosen::default() };
        let own = Chosen { pids: vec![std::process::id()], ..Chosen::default() };
        let open = |subject, chosen: &Chosen| Counter::open(subject, chosen).map_err(|e| e.to_string());
        let sizes = host.inside(End::Right, || open(Subject::Skb, &device).map_err(Trouble::Failed));
        let mut sizes = sizes.map_err(Trouble::why)?;
        let mut latency = open(Subject::Latency, &own)?;
        (self.wait)(Instant::now() + self.time)?;
        let read = |counter: &mut Counter| counter.read().map_err(|e| e.to_string());
        Ok([read(&mut sizes)?, read(&mut latency)?])
    }

    fn sample(&mut self) -> Result<Profile, String> {
        (self.wait)(Instant::now() + WARM_UP)?;
        let open = self.sampler.as_mut().ok_or("nothing samples")?;
        let mut sampler = open()?;
        let end = Instant::now() + self.time;
        loop {
            let next = (Instant::now() + Duration::from_secs(1)).min(end);
            (self.wait)(next)?;
            if next == end {
                return sampler.read().map_err(|e| e.to_string());
            }
            sampler.poll().map_err(|e| e.to_string())?;
        }
    }
}

/// Samples of the network stack by side and category, of these processes: what others on this host do meanwhile is not the
/// experiment's.
fn by_side(profile: &Profile, pids: &[u32]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let of = |side: Side| {
        let choice = Choice { sides: vec![side], pids: pids.to_vec(), ..Choice::default() };
        let rows = Table::of(profile, &choice).rows.into_iter().map(|row| (row.key.concat(), row.samples));
        let all = Category::ALL.iter().map(|category| (category.name().to_owned(), 0));
        (side.name().to_owned(), all.chain(rows).collect())
    };
    Side::ALL.into_iter().filter(|side| *side != Side::Other).map(of).collect()
}

/// The processes whose CPU time is counted, and whose samples: this one, and the kernel's threads that run softirqs.
fn counted() -> Vec<u32> {
    let softirqs = ksoftirqds().filter_map(|stat| u32::try_from(stat.pid).ok());
    std::iter::once(std::process::id()).chain(softirqs).collect()
}

/// The kernel's threads that run softirqs, of all CPUs.
fn ksoftirqds() -> impl Iterator<Item = Stat> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| process.stat().ok());
    stats.filter(|stat| stat.comm.starts_with("ksoftirqd/"))
}

/// Their CPU time in seconds, whoever has raised what they run.
#[expect(clippy::cast_precision_loss, reason = "ticks of a few days are exact")]
fn ksoftirqd() -> f64 {
    let ticks: u64 = ksoftirqds().map(|stat| stat.utime + stat.stime).sum();
    ticks as f64 / procfs::ticks_per_second() as f64
}
