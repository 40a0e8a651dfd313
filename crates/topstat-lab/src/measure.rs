// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures one variant under one configuration: throughput with CPU time, and in a separate run the distribution of CPU time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::place::{Place, Trouble};
use super::plan::Variant;
use super::results::{HostFigures, Run};
use super::settings::Configuration;
use super::side::{Answer, Counts, Description, Figures, Local, Open, Request, Samples, Setup, Side};
use super::traffic::{Flow, FlowEnd, Sockets};

/// How long flows run before the measurement, until windows and buffers have grown.
const WARM_UP: Duration = Duration::from_millis(500);
/// The time between two messages to both ends that the measurement goes on.
const BEAT: Duration = Duration::from_secs(1);

/// The parameters that all runs share.
pub struct Measure<'a> {
    /// How long each run is measured.
    pub time: Duration,
    /// The congestion control of all sockets.
    pub congestion: Option<String>,
    /// Whether histograms are made.
    pub histograms: bool,
    /// The number of stack samples a second; 0: no samples.
    pub hz: u32,
    /// Waits. The error says that the user wants the program to end.
    pub wait: &'a mut dyn FnMut(Instant) -> Result<(), String>,
}

/// Both ends of the traffic.
pub struct Sides<'a> {
    /// The end that sends.
    pub sender: &'a mut dyn Side,
    /// The end that receives.
    pub receiver: &'a mut dyn Side,
    /// Their addresses.
    pub addresses: [IpAddr; 2],
    /// The descriptions of the sender's and the receiver's host, if there are two hosts.
    pub hosts: Option<[Description; 2]>,
}

/// The error for an answer that does not match its request.
fn strange() -> Trouble {
    Trouble::Failed("the peer has answered what was not asked".to_owned())
}

impl Sides<'_> {
    fn both(&mut self) -> [&mut dyn Side; 2] {
        [&mut *self.sender, &mut *self.receiver]
    }

    /// The ends that see different hosts: one end, if both are on one host.
    fn on_hosts(&mut self) -> Vec<&mut dyn Side> {
        let skip = usize::from(self.hosts.is_none());
        self.both().into_iter().skip(skip).collect()
    }

    /// The figures of the sender, which is asked first, and of the receiver.
    fn figures(&mut self, requests: [Request; 2]) -> Result<[Figures; 2], Trouble> {
        let mut figures = [Figures::default(); 2];
        for ((side, request), figures) in self.both().into_iter().zip(requests).zip(&mut figures) {
            let Answer::Figures(found) = side.ask(request)? else { return Err(strange()) };
            *figures = found;
        }
        Ok(figures)
    }

    /// The figures of both ends so far.
    fn look(&mut self) -> Result<[Figures; 2], Trouble> {
        self.figures([Request::Look, Request::Look])
    }

    fn prepare(
        &mut self,
        configuration: &Configuration,
        variant: &Variant,
        sockets: &Sockets,
    ) -> Result<String, Trouble> {
        let mut congestion = String::new();
        // The receiver is prepared first. A device that loses its link while it is set then has it again before anything is sent.
        for side in self.both().into_iter().rev() {
            let setup = Setup { configuration: configuration.clone(), sockets: sockets.clone() };
            let Answer::Ready(name) = side.ask(Request::Prepare(setup))? else { return Err(strange()) };
            congestion = name;
        }
        if variant.loss > 0.0 {
            self.receiver.ask(Request::Lose(variant.loss))?;
        }
        Ok(congestion)
    }

    fn connect(&mut self, flows: &[Flow]) -> Result<(), Trouble> {
        let [own, peer] = self.addresses;
        let end =
            |of: fn(&Flow) -> usize| flows.iter().map(|flow| FlowEnd { cpu: of(flow), kind: flow.kind }).collect();
        let listen = Request::Listen { flows: end(|flow| flow.to_cpu), own: peer, peer: own };
        let Answer::Listening(to) = self.receiver.ask(listen)? else { return Err(strange()) };
        // The receiver may name no other host.
        if to.len() != flows.len() || to.iter().any(|to| to.ip() != peer) {
            return Err(strange());
        }
        self.sender.ask(Request::Connect { flows: end(|flow| flow.from_cpu), own, to }).map(drop)
    }

    /// Ends the traffic. The sender ends first, so that the receiver can read all data that was sent.
    fn stop(&mut self) -> Result<[Figures; 2], Trouble> {
        self.figures([Request::Stop(false), Request::Stop(true)])
    }
}

/// Both ends on this host, in two new namespaces.
///
/// # Errors
///
/// See [`Place::pair`].
pub fn on_this_host<'a>(open: Option<&'a mut Open<'a>>) -> Result<([Local<'a>; 2], [IpAddr; 2]), String> {
    let places = Place::pair()?;
    let mut addresses = Vec::new();
    for place in &places {
        addresses.extend(place.link()?.addresses().into_iter().filter(IpAddr::is_ipv4));
    }
    let addresses =
        <[IpAddr; 2]>::try_from(addresses).map_err(|_| "the devices do not have their addresses".to_owned())?;
    let [sender, receiver] = places;
    Ok(([Local::new(sender, None, None), Local::new(receiver, None, open)], addresses))
}

impl Measure<'_> {
    /// Makes all runs of a variant.
    ///
    /// # Errors
    ///
    /// See [`Trouble`].
    pub fn run(
        &mut self,
        sides: &mut Sides,
        (name, configuration): (&str, &Configuration),
        variant: &Variant,
        number: u32,
    ) -> Result<Run, Trouble> {
        if let Some(why) = &variant.unavailable {
            return Err(Trouble::Unavailable(why.clone()));
        }
        let sockets = Sockets { buffer: variant.buffer, congestion: self.congestion.clone() };
        let (mut run, congestion) =
            self.traffic(sides, configuration, variant, &sockets, |measure, sides| measure.throughput(sides))?;
        let (configuration_name, variant_name) = (name.to_owned(), variant.name.clone());
        run = Run { configuration: configuration_name, variant: variant_name, run: number, congestion, ..run };
        if self.hz > 0 {
            let (samples, _) =
                self.traffic(sides, configuration, variant, &sockets, |measure, sides| measure.sample(sides))?;
            for (number, samples) in samples.into_iter().enumerate() {
                run.samples_lost += samples.lost;
                run.classified.add(&samples.classified);
                add(&mut run.sides, &samples.sides);
                if let Some(host) = run.hosts.get_mut(number) {
                    host.sides = samples.sides;
                }
            }
        }
        if self.histograms {
            let (counts, _) =
                self.traffic(sides, configuration, variant, &sockets, |measure, sides| measure.count(sides))?;
            (run.histograms, run.besides) = (counts.histograms, counts.besides);
        }
        Ok(run)
    }

    /// Makes the traffic of a variant during a measurement. Also returns the congestion control of the traffic.
    fn traffic<M: Measured>(
        &mut self,
        sides: &mut Sides,
        configuration: &Configuration,
        variant: &Variant,
        sockets: &Sockets,
        during: impl FnOnce(&mut Self, &mut Sides) -> Result<M, Trouble>,
    ) -> Result<(M, String), Trouble> {
        let congestion = sides.prepare(configuration, variant, sockets)?;
        sides.connect(&variant.flows)?;
        self.pause(sides, Instant::now() + WARM_UP)?;
        let mut measured = during(self, sides)?;
        let [sender, receiver] = sides.stop()?;
        measured.end(&sender, &receiver);
        Ok((measured, congestion))
    }

    /// Waits, and tells both ends in regular beats that the program still runs.
    fn pause(&mut self, sides: &mut Sides, until: Instant) -> Result<(), Trouble> {
        loop {
            let next = (Instant::now() + BEAT).min(until);
            (self.wait)(next)?;
            if next == until {
                return Ok(());
            }
            for side in sides.both() {
                side.ask(Request::Beat)?;
            }
        }
    }

    fn throughput(&mut self, sides: &mut Sides) -> Result<Run, Trouble> {
        let before = sides.look()?;
        self.pause(sides, Instant::now() + self.time)?;
        let after = sides.look()?;
        let [sender, receiver] = [0, 1].map(|end| Passed::between(&before[end], &after[end]));
        let of_host = |(passed, about): (&Passed, Description)| HostFigures {
            host: about.host,
            kernel: about.kernel,
            device: about.device,
            threads_seconds: passed.cpu_seconds,
            ksoftirqd_seconds: passed.ksoftirqd_seconds,
            busy_seconds: passed.busy_seconds,
            ..HostFigures::default()
        };
        let described = sides.hosts.clone().into_iter().flatten();
        let hosts: Vec<HostFigures> = [&sender, &receiver].into_iter().zip(described).map(of_host).collect();
        Ok(Run {
            seconds: receiver.seconds,
            bytes: receiver.received,
            responses: sender.responses,
            sender_seconds: sender.cpu_seconds,
            receiver_seconds: receiver.cpu_seconds,
            ksoftirqd_seconds: receiver.ksoftirqd_seconds
                + if hosts.is_empty() { 0.0 } else { sender.ksoftirqd_seconds },
            arrived: after[1].arrived.saturating_sub(before[1].arrived),
            dropped: after[1].dropped.saturating_sub(before[1].dropped),
            hosts,
            ..Run::default()
        })
    }

    /// The samples of each host.
    fn sample(&mut self, sides: &mut Sides) -> Result<Vec<Samples>, Trouble> {
        for side in sides.on_hosts() {
            side.ask(Request::Sample(self.hz))?;
        }
        self.pause(sides, Instant::now() + self.time)?;
        let taken = sides.on_hosts().into_iter().map(|side| match side.ask(Request::Samples)? {
            Answer::Samples(samples) => Ok(samples),
            _ => Err(strange()),
        });
        taken.collect()
    }

    fn count(&mut self, sides: &mut Sides) -> Result<Counts, Trouble> {
        sides.receiver.ask(Request::Count)?;
        self.pause(sides, Instant::now() + self.time)?;
        match sides.receiver.ask(Request::Counts)? {
            Answer::Counts(counts) => Ok(counts),
            _ => Err(strange()),
        }
    }
}

/// A result that the figures of the whole traffic complete at its end.
trait Measured {
    fn end(&mut self, _sender: &Figures, _receiver: &Figures) {}
}

impl Measured for Run {
    fn end(&mut self, sender: &Figures, receiver: &Figures) {
        (self.sent, self.read) = (sender.sum.sent, receiver.sum.received);
    }
}

impl Measured for Vec<Samples> {}
impl Measured for Counts {}

/// The difference between two figures of one end. Figures of another host may have any value.
struct Passed {
    seconds: f64,
    received: u64,
    responses: u64,
    cpu_seconds: f64,
    ksoftirqd_seconds: f64,
    busy_seconds: f64,
}

impl Passed {
    fn between(before: &Figures, after: &Figures) -> Self {
        let seconds =
            |part: fn(&Figures) -> u64| Duration::from_nanos(part(after).saturating_sub(part(before))).as_secs_f64();
        Self {
            seconds: seconds(|figures| figures.at_ns),
            received: after.sum.received.saturating_sub(before.sum.received),
            responses: after.sum.responses.saturating_sub(before.sum.responses),
            cpu_seconds: seconds(|figures| figures.sum.cpu_ns),
            ksoftirqd_seconds: (after.ksoftirqd_seconds - before.ksoftirqd_seconds).max(0.0),
            busy_seconds: (after.busy_seconds - before.busy_seconds).max(0.0),
        }
    }
}

fn add(sums: &mut BTreeMap<String, BTreeMap<String, u64>>, more: &BTreeMap<String, BTreeMap<String, u64>>) {
    for (side, categories) in more {
        let sums = sums.entry(side.clone()).or_default();
        for (category, count) in categories {
            *sums.entry(category.clone()).or_default() += count;
        }
    }
}
