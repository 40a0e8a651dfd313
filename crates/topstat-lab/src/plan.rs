// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of an experiment: its flows, their CPUs and kinds, and the parameters that vary.

use serde::{Deserialize, Serialize};

use super::traffic::{Flow, Kind};
use crate::error::Error;

/// The most flows of a run: each is a thread at both ends.
pub const MOST_FLOWS: usize = 1024;

/// The experiments of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// One long flow
    SingleFlow,
    /// One long flow, with receive buffers of several sizes
    Buffers,
    /// Long flows, each between a CPU of its own on each side
    OneToOne,
    /// Long flows that all arrive on one CPU
    Incast,
    /// Long flows that all come from one CPU
    Outcast,
    /// A long flow between each CPU of one side and each of the other
    AllToAll,
    /// One long flow, of which packets are lost
    Loss,
    /// Requests and responses of several sizes, all to one CPU
    ShortFlows,
    /// A long flow, and requests and responses, all on one CPU of each side
    Mixed,
    /// One long flow, received on the node that it is sent on, and on another
    Numa,
}

impl Experiment {
    /// Its name, as on the command line.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The parameters of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The number of flows; for all-to-all the number of CPUs of each side.
    pub flows: usize,
    /// The bytes of a request, and of its response.
    pub sizes: Vec<usize>,
    /// The shares of packets that are lost, in percent.
    pub losses: Vec<f64>,
    /// The sizes of receive buffers, in bytes.
    pub buffers: Vec<usize>,
}

/// A case that an experiment compares under each configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name, which differs from all other variants: `loss 0.15%`.
    pub name: String,
    /// The flows of the variant.
    pub flows: Vec<Flow>,
    /// The receive buffer; `None`: the kernel tunes it.
    pub buffer: Option<usize>,
    /// The share of packets that are lost, in percent.
    pub loss: f64,
    /// Why the variant is unavailable here.
    pub unavailable: Option<String>,
}

/// The CPUs that both sides may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The CPUs of senders.
    pub senders: Vec<usize>,
    /// The CPUs of receivers.
    pub receivers: Vec<usize>,
    /// The two CPUs on which the flow of the NUMA experiment is received: one on the node of the sender, but not the sender's
    /// CPU, and one on another node. With two hosts, the first is on the node of the receiver's device.
    pub numa: Option<(usize, usize)>,
}

impl Places {
    /// Splits the allowed CPUs: half of them for each side. A single CPU serves both sides.
    pub fn of(cpus: &[usize], nodes: &[Vec<usize>]) -> Self {
        let half = cpus.len() / 2;
        let (senders, receivers) = if half == 0 { (cpus, cpus) } else { cpus.split_at(half) };
        let node_of = |cpu: usize| nodes.iter().position(|node| node.contains(&cpu));
        let first = senders.first().copied().unwrap_or(0);
        let same = cpus.iter().find(|cpu| **cpu != first && node_of(**cpu) == node_of(first));
        let other = cpus.iter().find(|cpu| node_of(**cpu) != node_of(first));
        let numa = same.zip(other).map(|(same, other)| (*same, *other));
        Self { senders: senders.to_vec(), receivers: receivers.to_vec(), numa }
    }

    /// The CPUs of two hosts: each side has all CPUs of its host. For NUMA they are CPUs of the receiver, on the node of its
    /// device and on another node.
    pub fn of_two(senders: &[usize], receivers: &[usize], nodes: &[Vec<usize>]) -> Self {
        let on = |node: usize| nodes.get(node).and_then(|cpus| cpus.first()).copied();
        Self { senders: senders.to_vec(), receivers: receivers.to_vec(), numa: on(0).zip(on(1)) }
    }

    fn sender(&self, number: usize) -> usize {
        self.senders[number % self.senders.len()]
    }

    fn receiver(&self, number: usize) -> usize {
        self.receivers[number % self.receivers.len()]
    }
}

/// The variants that the experiment compares.
///
/// # Errors
///
/// When a parameter is out of its range.
pub fn variants(experiment: Experiment, parameters: &Parameters, places: &Places) -> Result<Vec<Variant>, Error> {
    let count = parameters.flows;
    let flows = if experiment == Experiment::AllToAll { count * count } else { count };
    if flows > MOST_FLOWS {
        return Err(Error::Usage(format!("{flows} flows are more than {MOST_FLOWS}")));
    }
    let flow = |from: usize, to: usize, kind| Flow { from_cpu: places.sender(from), to_cpu: places.receiver(to), kind };
    let long = |pairs: Vec<(usize, usize)>| pairs.into_iter().map(|(from, to)| flow(from, to, Kind::Long)).collect();
    let of = |name: String, flows: Vec<Flow>| Variant { name, flows, buffer: None, loss: 0.0, unavailable: None };
    let flows = || format!("{count} flows");
    Ok(match experiment {
        Experiment::SingleFlow => vec![of("1 flow".to_owned(), long(vec![(0, 0)]))],
        Experiment::OneToOne => vec![of(flows(), long((0..count).map(|n| (n, n)).collect()))],
        Experiment::Incast => vec![of(flows(), long((0..count).map(|n| (n, 0)).collect()))],
        Experiment::Outcast => vec![of(flows(), long((0..count).map(|n| (0, n)).collect()))],
        Experiment::AllToAll => {
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            vec![of(format!("{count} x {count} flows"), long(pairs.collect()))]
        }
        Experiment::Buffers => {
            let sized = |bytes: &usize| Variant {
                buffer: Some(*bytes),
                ..of(format!("buffer {} KiB", bytes / 1024), long(vec![(0, 0)]))
            };
            parameters.buffers.iter().map(sized).collect()
        }
        Experiment::Loss => {
            let lossy = |loss: &f64| Variant { loss: *loss, ..of(format!("loss {loss}%"), long(vec![(0, 0)])) };
            parameters.losses.iter().map(lossy).collect()
        }
        Experiment::ShortFlows => {
            let sized = |bytes: &usize| {
                let flows = (0..count).map(|n| flow(n, 0, Kind::Requests { bytes: *bytes }));
                of(format!("{count} flows of {bytes} bytes"), flows.collect())
            };
            parameters.sizes.iter().map(sized).collect()
        }
        Experiment::Mixed => {
            let bytes = parameters.sizes.first().copied().unwrap_or(4096);
            let short = (0..count).map(|_| flow(0, 0, Kind::Requests { bytes }));
            let flows = [flow(0, 0, Kind::Long)].into_iter().chain(short);
            vec![of(format!("1 long flow and {count} of {bytes} bytes"), flows.collect())]
        }
        Experiment::Numa => {
            let why = "no CPU that may receive is on another NUMA node, with one more on the first".to_owned();
            let to = |name: &str, to_cpu: Option<usize>| Variant {
                unavailable: to_cpu.is_none().then(|| why.clone()),
                ..of(
                    name.to_owned(),
                    to_cpu
                        .map(|to_cpu| Flow { from_cpu: places.sender(0), to_cpu, kind: Kind::Long })
                        .into_iter()
                        .collect(),
                )
            };
            vec![
                to("same node", places.numa.map(|(same, _)| same)),
                to("other node", places.numa.map(|(_, other)| other)),
            ]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters { flows: 3, sizes: vec![4096, 65_536], losses: vec![0.0, 1.5], buffers: vec![102_400] }
    }

    fn pairs(experiment: Experiment, places: &Places) -> Vec<(usize, usize)> {
        let variants = variants(experiment, &parameters(), places).unwrap();
        variants[0].flows.iter().map(|flow| (flow.from_cpu, flow.to_cpu)).collect()
    }

    #[test]
    fn patterns_have_their_flows_on_their_cpus() {
        let places = Places::of(&[0, 1, 2, 3, 4, 5], &[(0..6).collect()]);
        assert_eq!((places.senders.len(), places.numa), (3, None));
        assert_eq!(pairs(Experiment::SingleFlow, &places), [(0, 3)]);
        assert_eq!(pairs(Experiment::OneToOne, &places), [(0, 3), (1, 4), (2, 5)]);
        assert_eq!(pairs(Experiment::Incast, &places), [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(pairs(Experiment::Outcast, &places), [(0, 3), (0, 4), (0, 5)]);
        assert_eq!(pairs(Experiment::AllToAll, &places).len(), 9);
        assert_eq!(pairs(Experiment::Mixed, &places), [(0, 3); 4]);
        assert_eq!(variants(Experiment::ShortFlows, &parameters(), &places).unwrap().len(), 2);
        assert_eq!(variants(Experiment::Loss, &parameters(), &places).unwrap()[1].loss, 1.5);
    }

    #[test]
    fn cpus_are_used_again_where_there_are_few() {
        assert_eq!(pairs(Experiment::OneToOne, &Places::of(&[4], &[])), [(4, 4); 3]);
        assert_eq!(pairs(Experiment::OneToOne, &Places::of(&[0, 1], &[])), [(0, 1); 3]);
        let many = Parameters { flows: 33, ..parameters() };
        assert!(variants(Experiment::AllToAll, &many, &Places::of(&[0], &[])).is_err());
    }

    #[test]
    fn of_two_hosts_each_has_all_its_cpus() {
        let one_node = Places::of_two(&[0, 1], &[0, 1, 2], &[vec![0, 1, 2]]);
        assert_eq!((pairs(Experiment::OneToOne, &one_node), one_node.numa), (vec![(0, 0), (1, 1), (0, 2)], None));
        assert_eq!(Places::of_two(&[0], &[0, 1, 2, 3], &[vec![2, 3], vec![0, 1]]).numa, Some((2, 0)));
    }

    #[test]
    fn numa_takes_two_nodes() {
        let one = variants(Experiment::Numa, &parameters(), &Places::of(&[0, 1], &[vec![0, 1]])).unwrap();
        assert!(one.iter().all(|variant| variant.unavailable.is_some()));
        let places = Places::of(&[0, 1, 2, 3], &[vec![0, 1], vec![2, 3]]);
        let two = variants(Experiment::Numa, &parameters(), &places).unwrap();
        assert_eq!(two.iter().map(|variant| variant.flows[0].to_cpu).collect::<Vec<_>>(), [1, 2]);
    }
}
