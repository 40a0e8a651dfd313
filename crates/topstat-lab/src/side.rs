// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of an experiment: its requests, and the end on this host. The end on another host takes the same requests as messages
//! ([`super::remote`]).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use topstat_families::netstack::{Chosen, Counter, Loss, MOST_HZ, Sampler};
use topstat_kernel::Error;
use topstat_model::histograms::{Histogram, Subject};
use topstat_model::stacks::{Category, Choice, Profile, Side as Part, Table};

use super::cpu::{busy_seconds, counted, cpus, nodes, now_ns, softirq_seconds};
use super::place::{Place, Trouble};
use super::plan::MOST_FLOWS;
use super::results::Classified;
use super::saved::Claim;
use super::settings::Configuration;
use super::traffic::{self, FlowEnd, Generator, Kind, Sockets, Sum};

/// Sampled stacks of the kernel.
pub trait Profiling {
    /// The samples since the last call.
    ///
    /// # Errors
    ///
    /// See [`Sampler::read`].
    fn read(&mut self) -> Result<Profile, Error>;

    /// The caller calls this about every second if intervals are long: see [`Sampler::poll`].
    ///
    /// # Errors
    ///
    /// See [`Sampler::poll`].
    fn poll(&mut self) -> Result<(), Error>;

    /// The user's rules that match no function of this kernel: the line of each, and its pattern.
    fn unmatched_rules(&self) -> Vec<(usize, String)>;
}

impl Profiling for Sampler {
    fn read(&mut self) -> Result<Profile, Error> {
        Self::read(self)
    }

    fn poll(&mut self) -> Result<(), Error> {
        Self::poll(self)
    }

    fn unmatched_rules(&self) -> Vec<(usize, String)> {
        self.classifier().unmatched()
    }
}

/// The largest values that a message may ask for, as on the command line.
const MOST_REQUEST_BYTES: usize = 16 << 20;
const MOST_BUFFER_BYTES: usize = 1 << 30;

/// A request to an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Describes the end.
    Describe,
    /// Saves the settings of the end. Both ends save before either is changed, since a change at one end may show at the other.
    Save,
    /// Sets the device, and prepares for traffic. Earlier traffic and measurements end.
    Prepare(Setup),
    /// Loses a share of the packets that arrive, in percent. The request follows the preparation of both ends, since loss may
    /// keep the other end from setting its device, as it does with veth.
    Lose(f64),
    /// Listens for connections.
    Listen {
        /// The flows of the connections.
        flows: Vec<FlowEnd>,
        /// The own address.
        own: IpAddr,
        /// The address of the peer that connects.
        peer: IpAddr,
    },
    /// Connects, and sends.
    Connect {
        /// The flows of the connections.
        flows: Vec<FlowEnd>,
        /// The own address.
        own: IpAddr,
        /// The addresses to connect to.
        to: Vec<SocketAddr>,
    },
    /// Returns the figures so far.
    Look,
    /// Samples stacks this often a second, from now on.
    Sample(u32),
    /// Returns the samples.
    Samples,
    /// Makes histograms from now on.
    Count,
    /// Returns the histograms.
    Counts,
    /// Ends the traffic. True: the other end has ended, and the data on its way is read first.
    Stop(bool),
    /// Restores the settings.
    Restore,
    /// Keeps the end going: an end that hears nothing from the other host stops.
    Beat,
}

/// The settings of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The configuration of the device.
    pub configuration: Configuration,
    /// The options of the sockets.
    pub sockets: Sockets,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Describe`].
    Description(Description),
    /// To [`Request::Prepare`]: the congestion control of the sockets.
    Ready(String),
    /// To [`Request::Listen`]: the addresses to connect to.
    Listening(Vec<SocketAddr>),
    /// To [`Request::Look`] and [`Request::Stop`].
    Figures(Figures),
    /// To [`Request::Samples`].
    Samples(Samples),
    /// To [`Request::Counts`].
    Counts(Counts),
    /// To [`Request::Restore`]: the restored settings, if any were changed.
    Restored(Option<String>),
    /// To all other requests.
    Done,
}

/// The description of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The name of the host.
    pub host: String,
    /// The kernel of the host.
    pub kernel: String,
    /// The device.
    pub device: String,
    /// The addresses of the device.
    pub addresses: Vec<IpAddr>,
    /// The CPUs that may be used.
    pub cpus: Vec<usize>,
    /// The allowed CPUs by NUMA node; the node of the device comes first.
    pub nodes: Vec<Vec<usize>>,
}

/// The counts of an end at an instant. None of them ever decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The time, by the host's monotonic clock.
    pub at_ns: u64,
    /// The sums of the flows.
    pub sum: Sum,
    /// CPU time of the kernel's threads that run softirqs.
    pub ksoftirqd_seconds: f64,
    /// CPU time of everything that the host has run.
    pub busy_seconds: f64,
    /// Packets that arrived while packets were lost on purpose.
    pub arrived: u64,
    /// Packets that were lost on purpose.
    pub dropped: u64,
}

/// Samples of stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Samples by side and category.
    pub sides: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples whose stack could not be stored.
    pub lost: u64,
    /// How the samples were classified.
    pub classified: Classified,
}

/// Histograms, by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Histograms of packets and of data.
    pub histograms: BTreeMap<String, Histogram>,
    /// Other counts.
    pub besides: BTreeMap<String, u64>,
}

/// An end.
pub trait Side {
    /// Makes a request.
    ///
    /// # Errors
    ///
    /// When the end can't do it, or is gone.
    fn ask(&mut self, request: Request) -> Result<Answer, Trouble>;
}

/// Opens a sampler of stacks, for this number of samples a second.
pub type Open<'a> = dyn FnMut(u32) -> Result<Box<dyn Profiling>, String> + 'a;

/// The end on this host. When it is dropped, its traffic ends, and its settings are restored.
pub struct Local<'a> {
    place: Arc<Place>,
    /// The claim that saves the settings of a device of this host; `None`: the device ends with the process.
    claim: Option<&'a Claim>,
    open: Option<&'a mut Open<'a>>,
    generator: Option<Generator>,
    loss: Option<Loss>,
    sampler: Option<Box<dyn Profiling>>,
    counters: Option<[Counter; 2]>,
    saved: bool,
}

impl<'a> Local<'a> {
    /// Makes the end at this place. It changes nothing yet.
    pub fn new(place: Place, claim: Option<&'a Claim>, open: Option<&'a mut Open<'a>>) -> Self {
        let (generator, loss, sampler, counters) = (None, None, None, None);
        Self { place: Arc::new(place), claim, open, generator, loss, sampler, counters, saved: false }
    }

    /// The sums of its flows since it was last prepared.
    pub fn sum(&self) -> Sum {
        self.generator.as_ref().map(Generator::sum).unwrap_or_default()
    }

    /// Describes the end.
    ///
    /// # Errors
    ///
    /// When the device does not exist, or is not up.
    pub fn describe(&self) -> Result<Description, String> {
        let uname = rustix::system::uname();
        let cpus = cpus()?;
        let link = self.place.link()?;
        if !link.is_up() {
            return Err(format!("{} is not up: ip link set {} up", self.place.device, self.place.device));
        }
        Ok(Description {
            host: uname.nodename().to_string_lossy().into_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            device: self.place.device.clone(),
            addresses: link.addresses(),
            nodes: nodes(&cpus, &self.place.device),
            cpus,
        })
    }

    /// Saves the settings, unless they are saved.
    fn save(&mut self) -> Result<(), String> {
        if let Some(claim) = self.claim.filter(|_| !self.saved) {
            claim.save(&self.place)?;
            self.saved = true;
        }
        Ok(())
    }

    fn prepare(&mut self, setup: Setup) -> Result<String, Trouble> {
        self.quiet();
        self.save()?;
        setup.configuration.apply(&self.place)?;
        let congestion = traffic::congestion(&self.place, setup.sockets.congestion.as_deref())?;
        self.generator = Some(Generator::new(Arc::clone(&self.place), setup.sockets));
        Ok(congestion)
    }

    fn lose(&mut self, percent: f64) -> Result<(), Trouble> {
        // The program is attached while the thread is in the namespace of the device.
        let attach = || Loss::attach(&self.place.device, percent).map_err(|e| Trouble::Unavailable(e.to_string()));
        self.loss = Some(self.place.inside(attach)?);
        Ok(())
    }

    fn generator(&mut self) -> Result<&mut Generator, String> {
        self.generator.as_mut().ok_or_else(|| "it is not prepared".to_owned())
    }

    fn look(&self) -> Result<Figures, String> {
        let lost = self.loss.as_ref().map(Loss::lost).transpose().map_err(|e| e.to_string())?.unwrap_or_default();
        Ok(Figures {
            at_ns: now_ns(),
            sum: self.sum(),
            ksoftirqd_seconds: softirq_seconds(),
            busy_seconds: busy_seconds()?,
            arrived: lost.seen,
            dropped: lost.dropped,
        })
    }

    fn samples(&mut self) -> Result<Samples, String> {
        let mut sampler = self.sampler.take().ok_or("nothing is sampled")?;
        let profile = sampler.read().map_err(|e| e.to_string())?;
        let mut pids = counted();
        // Packets of a real device also arrive on idle CPUs: softirqs then run on top of the idle task.
        pids.extend(self.claim.map(|_| 0));
        let table = Table::of(&profile, &Choice { pids: pids.clone(), ..Choice::default() });
        Ok(Samples {
            sides: by_side(&profile, &pids),
            lost: profile.besides.lost,
            classified: Classified { samples: table.chosen, by_name: table.by_name, by_caller: table.by_caller },
        })
    }

    /// Starts to count the packets that arrive at the device, and the data that is copied to this process.
    fn count(&mut self) -> Result<(), String> {
        let device = Chosen { device: Some(self.place.device.clone()), ..Chosen::default() };
        let own = Chosen { pids: vec![std::process::id()], ..Chosen::default() };
        let open = |subject, chosen: &Chosen| Counter::open(subject, chosen).map_err(|e| e.to_string());
        let sizes = self.place.inside(|| open(Subject::Skb, &device))?;
        self.counters = Some([sizes, open(Subject::Latency, &own)?]);
        Ok(())
    }

    fn counts(&mut self) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for mut counter in self.counters.take().ok_or("nothing is counted")? {
            let read = counter.read().map_err(|e| e.to_string())?;
            let named = |(name, histogram): (&str, Histogram)| (name.to_owned(), histogram);
            counts.histograms.extend(read.series.into_iter().map(named));
            for (name, count) in read.besides {
                *counts.besides.entry(name.to_owned()).or_default() += count;
            }
        }
        Ok(counts)
    }

    /// Ends traffic and measurements.
    fn quiet(&mut self) {
        (self.generator, self.loss, self.sampler, self.counters) = (None, None, None, None);
    }

    /// Ends traffic and measurements, and restores the settings if they were changed.
    ///
    /// # Errors
    ///
    /// When the settings could not be restored: `topstat lab restore` tries again.
    pub fn restore(&mut self) -> Result<Option<String>, String> {
        self.quiet();
        let Some(claim) = self.claim.filter(|_| self.saved) else { return Ok(None) };
        let restored = claim.restore()?;
        self.saved = false;
        Ok(restored.map(|restored| restored.to_string()))
    }
}

impl Side for Local<'_> {
    fn ask(&mut self, request: Request) -> Result<Answer, Trouble> {
        Ok(match request {
            Request::Describe => Answer::Description(self.describe()?),
            Request::Save => {
                self.save()?;
                Answer::Done
            }
            Request::Prepare(setup) => Answer::Ready(self.prepare(setup)?),
            Request::Lose(percent) => {
                self.lose(percent)?;
                Answer::Done
            }
            Request::Listen { flows, own, peer } => Answer::Listening(self.generator()?.listen(&flows, own, peer)?),
            Request::Connect { flows, own, to } => {
                self.generator()?.connect(&flows, own, &to)?;
                Answer::Done
            }
            Request::Look => Answer::Figures(self.look()?),
            Request::Sample(hz) => {
                let open = self.open.as_mut().ok_or_else(|| "nothing samples here".to_owned())?;
                self.sampler = Some(open(hz)?);
                Answer::Done
            }
            Request::Samples => Answer::Samples(self.samples()?),
            Request::Count => {
                self.count()?;
                Answer::Done
            }
            Request::Counts => Answer::Counts(self.counts()?),
            Request::Stop(finish) => {
                self.generator()?.stop(finish)?;
                Answer::Figures(self.look()?)
            }
            Request::Restore => Answer::Restored(self.restore()?),
            Request::Beat => {
                if let Some(sampler) = &mut self.sampler {
                    sampler.poll().map_err(|e| e.to_string())?;
                }
                Answer::Done
            }
        })
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        // If this fails, the settings stay saved, and the next lab restores them.
        let _ = self.restore();
    }
}

impl Request {
    /// Checks that all values are in the range that the command line allows, since a message may have any value.
    ///
    /// # Errors
    ///
    /// The value that is out of its range.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, number: usize, most: usize| match number <= most {
            true => Ok(()),
            false => Err(format!("{number} {what} are more than {most}")),
        };
        match self {
            Self::Prepare(setup) => within("bytes of a buffer", setup.sockets.buffer.unwrap_or(0), MOST_BUFFER_BYTES),
            Self::Listen { flows, .. } | Self::Connect { flows, .. } => {
                within("flows", flows.len(), MOST_FLOWS)?;
                flows.iter().try_for_each(|flow| {
                    within("as the number of a CPU", flow.cpu, rustix::thread::CpuSet::MAX_CPU - 1)?;
                    match flow.kind {
                        Kind::Long => Ok(()),
                        Kind::Requests { bytes: 0 } => Err("a request has at least one byte".to_owned()),
                        Kind::Requests { bytes } => within("bytes of a request", bytes, MOST_REQUEST_BYTES),
                    }
                })
            }
            Self::Sample(hz) => within("samples a second", *hz as usize, MOST_HZ as usize),
            _ => Ok(()),
        }
    }
}

/// The samples of these processes in the network stack, by side and category. Other processes of this host are not part of the
/// experiment.
fn by_side(profile: &Profile, pids: &[u32]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let of = |part: Part| {
        let choice = Choice { sides: vec![part], pids: pids.to_vec(), ..Choice::default() };
        let rows = Table::of(profile, &choice).rows.into_iter().map(|row| (row.key.concat(), row.samples));
        let all = Category::ALL.iter().map(|category| (category.name().to_owned(), 0));
        (part.name().to_owned(), all.chain(rows).collect())
    };
    Part::ALL.into_iter().filter(|part| *part != Part::Other).map(of).collect()
}
