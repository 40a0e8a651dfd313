// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat lab`: experiments with the network stack.

mod serve;

use std::path::{Path, PathBuf};
use std::time::Instant;

use topstat_families::netstack;
use topstat_lab::cpu::{cpus, nodes};
use topstat_lab::key::Key;
use topstat_lab::measure::{Measure, Sides, on_this_host};
use topstat_lab::place::{Place, Trouble};
use topstat_lab::plan::{Experiment, Parameters, Places, Variant, variants};
use topstat_lab::remote::{Remote, addresses};
use topstat_lab::results::{Directory, Results, Run, mark};
use topstat_lab::saved::Claim;
use topstat_lab::settings::{CONFIGURATIONS, Configuration};
use topstat_lab::side::{Answer, Local, Open, Profiling, Request, Side};
use topstat_lab::{plot, report};

use crate::args::lab::{KeyArgs, LabArgs, LabCommand, ReportArgs};
use crate::backend::Backend;
use crate::console::{Console, Wake};
use crate::error::{Error, Exit};
use crate::suggest::did_you_mean;

/// The error text of a wait that Ctrl-C has ended.
const STOPPED: &str = "stopped";
/// The most loss that may be set between two hosts, in percent: the control connection may go the same way.
const MOST_LOSS_OF_TWO: f64 = 20.0;

type Named = (&'static str, Configuration);

pub fn run(args: &LabArgs, backend: &mut dyn Backend, console: &mut dyn Console) -> Result<Exit, Error> {
    match &args.command {
        Some(LabCommand::Report(report)) => return run_report(report, console),
        Some(LabCommand::Serve(serve)) => return serve::run(serve, backend, console),
        Some(LabCommand::Restore) => return run_restore(console),
        Some(LabCommand::Key(key)) => return run_key(key, console),
        None => {}
    }
    let experiment = args.experiment.ok_or_else(|| Error::Usage("which EXPERIMENT?".to_owned()))?;
    let configurations = configurations(&args.config)?;
    let mut open = |hz| sample(backend, hz);
    let plan = Plan { args, experiment, configurations };
    let directory = match (&args.peer, &args.interface, &args.key) {
        (Some(peer), Some(interface), Some(key)) => plan.on_two_hosts(peer, interface, key, &mut open, console)?,
        _ => plan.on_this_host(&mut open, console)?,
    };
    match directory {
        Finished::Whole(directory) => show(&directory, console)?,
        Finished::Stopped(directory) => {
            console.note(&format!("topstat: stopped; what was finished is in {}", directory.display()));
        }
    }
    Ok(Exit::Done)
}

/// The directory of results, with all runs, or with the runs that were finished before Ctrl-C.
enum Finished {
    Whole(PathBuf),
    Stopped(PathBuf),
}

/// The measurements to make.
struct Plan<'a> {
    args: &'a LabArgs,
    experiment: Experiment,
    configurations: Vec<Named>,
}

/// Measures one run of one variant under one configuration.
type Once<'a> = dyn FnMut(&mut Measure, (&str, &Configuration), &Variant, u32) -> Result<Run, Trouble> + 'a;

impl Plan<'_> {
    fn variants(&self, places: &Places) -> Result<Vec<Variant>, Error> {
        let parameters = Parameters {
            flows: self.args.flows as usize,
            sizes: self.args.size.iter().map(|bytes| *bytes as usize).collect(),
            losses: self.args.loss.clone(),
            buffers: self.args.buffer.iter().map(|kib| *kib as usize * 1024).collect(),
        };
        Ok(variants(self.experiment, &parameters, places)?)
    }

    /// Measures between two namespaces, which are made anew for each run.
    fn on_this_host(&self, open: &mut Open, console: &mut dyn Console) -> Result<Finished, Error> {
        let cpus = cpus().map_err(Error::Lab)?;
        let variants = self.variants(&Places::of(&cpus, &nodes(&cpus, "")))?;
        caught(console)?;
        let mut once = |measure: &mut Measure, configuration: (&str, &Configuration), variant: &Variant, number| {
            let ([mut sender, mut receiver], addresses) = on_this_host(Some(&mut *open))?;
            let mut sides = Sides { sender: &mut sender, receiver: &mut receiver, addresses, hosts: None };
            measure.run(&mut sides, configuration, variant, number)
        };
        self.measure(&variants, &mut once, console)
    }

    /// Measures between an interface of this host and an interface of another host.
    fn on_two_hosts(
        &self,
        peer: &str,
        interface: &str,
        key: &Path,
        open: &mut Open,
        console: &mut dyn Console,
    ) -> Result<Finished, Error> {
        let most = self.args.loss.iter().copied().fold(0.0, f64::max);
        if self.experiment == Experiment::Loss && most > MOST_LOSS_OF_TWO {
            return Err(Error::Usage(format!(
                "between two hosts at most {MOST_LOSS_OF_TWO}% are lost on purpose, not {most}%: the control connection \
                 may go the same way"
            )));
        }
        let key = Key::read(key).map_err(Error::Lab)?;
        let place = Place::here(interface).map_err(Error::Lab)?;
        let claim = Claim::take().map_err(Error::Lab)?;
        put_back(&claim, console)?;
        caught(console)?;
        let mut local = Local::new(place, Some(&claim), Some(open));
        let here = local.describe().map_err(Error::Lab)?;
        let mut remote = Remote::connect(peer, &key).map_err(Error::Lab)?;
        let there = remote.describe().map_err(Error::Lab)?;
        let hosts = if self.args.reverse { [there, here] } else { [here, there] };
        let addresses = addresses(&hosts[0], &hosts[1]).map_err(Error::Lab)?;
        let variants = self.variants(&Places::of_two(&hosts[0].cpus, &hosts[1].cpus, &hosts[1].nodes))?;
        for side in [&mut local as &mut dyn Side, &mut remote] {
            side.ask(Request::Save).map_err(|trouble| Error::Lab(trouble.why()))?;
        }
        let mut once = |measure: &mut Measure, configuration: (&str, &Configuration), variant: &Variant, number| {
            let hosts = Some(hosts.clone());
            let mut sides = match self.args.reverse {
                false => Sides { sender: &mut local, receiver: &mut remote, addresses, hosts },
                true => Sides { sender: &mut remote, receiver: &mut local, addresses, hosts },
            };
            measure.run(&mut sides, configuration, variant, number)
        };
        let ended = self.measure(&variants, &mut once, console).map_err(|e| match (e, remote.gone()) {
            // The connections break because the other host is gone: that is the error to report.
            (Error::Lab(_), Some(gone)) => Error::Lab(gone),
            (e, _) => e,
        });
        // Both hosts are asked to restore their settings, even if one of them can't.
        let back = local.restore();
        let there = match &ended {
            // The other host may be gone. It then knows that this host is gone, too.
            Err(_) => Ok(()),
            Ok(_) => remote.ask(Request::Restore).map(|answer| {
                if let Answer::Restored(Some(what)) = answer {
                    console.note(&format!("topstat: {peer}: {}", topstat_model::typeset::escape(&what)));
                }
            }),
        };
        match &back {
            Ok(Some(what)) => console.note(&format!("topstat: {what}")),
            Ok(None) => {}
            Err(why) => console.note(&format!("topstat: {why}; 'topstat lab restore' tries again")),
        }
        let finished = ended?;
        back.map_err(Error::Lab)?;
        there.map_err(|trouble| Error::Lab(trouble.why()))?;
        Ok(finished)
    }

    /// Measures everything: all configurations and variants once, then all again, so that changes on the host during the
    /// measurement affect all of them.
    fn measure(&self, variants: &[Variant], once: &mut Once, console: &mut dyn Console) -> Result<Finished, Error> {
        let mark = mark(&self.experiment.name());
        let default = || PathBuf::from(format!("topstat-lab-{}-{}", mark.experiment, mark.time.replace(':', "")));
        let mut directory = Directory::create(&self.args.out.clone().unwrap_or_else(default), &mark)?;
        let path = directory.path().to_owned();
        match self.measure_into(&mut directory, variants, once, console) {
            Err(Error::Lab(why)) if why == STOPPED => Ok(Finished::Stopped(path)),
            Err(e) => Err(e),
            Ok(()) => Ok(Finished::Whole(path)),
        }
    }

    fn measure_into(
        &self,
        directory: &mut Directory,
        variants: &[Variant],
        once: &mut Once,
        console: &mut dyn Console,
    ) -> Result<(), Error> {
        let args = self.args;
        let all = args.runs as usize * self.configurations.len() * variants.len();
        let mut done = 0;
        let mut out: Vec<(&str, &str)> = Vec::new();
        for number in 1..=args.runs {
            for ((name, configuration), variant) in
                self.configurations.iter().flat_map(|c| variants.iter().map(move |v| (c, v)))
            {
                done += 1;
                let both = (*name, variant.name.as_str());
                // An unavailable combination is reported once.
                if out.contains(&both) {
                    continue;
                }
                console.note(&format!("topstat: {done} of {all}: {}, {}, run {number}", both.0, both.1));
                let mut wait = |until: Instant| wait(until, console);
                let mut measure = Measure {
                    time: args.time,
                    congestion: args.congestion.clone(),
                    histograms: args.histograms,
                    hz: args.hz,
                    wait: &mut wait,
                };
                let run = match once(&mut measure, (name, configuration), variant, number) {
                    Ok(run) => run,
                    Err(Trouble::Failed(why)) => return Err(Error::Lab(why)),
                    Err(Trouble::Unavailable(why)) => {
                        out.push(both);
                        let (configuration, variant) = (both.0.to_owned(), both.1.to_owned());
                        Run { configuration, variant, run: number, unavailable: Some(why), ..Run::default() }
                    }
                };
                if run.unavailable.is_none() && !run.has_carried() {
                    console.note(&format!(
                        "topstat: nothing was carried in {:.1} s: no figure is made of it",
                        run.seconds
                    ));
                }
                directory.add(&run)?;
            }
        }
        Ok(())
    }
}

/// Samples stacks `hz` times a second.
fn sample(backend: &mut dyn Backend, hz: u32) -> Result<Box<dyn Profiling>, String> {
    let options = netstack::Options { hz, ..netstack::Options::default() };
    backend.stacks(&options).map_err(|e| e.to_string())
}

/// From now on Ctrl-C ends a wait.
fn caught(console: &mut dyn Console) -> Result<(), Error> {
    console.catch_signals(false).map_err(|source| Error::System { what: "catch signals", source })
}

/// Restores the settings that a killed lab has left changed.
fn put_back(claim: &Claim, console: &mut dyn Console) -> Result<(), Error> {
    if let Some(restored) = claim.restore().map_err(Error::Lab)? {
        console.note(&format!("topstat: a lab was killed: {restored}"));
    }
    Ok(())
}

fn run_restore(console: &mut dyn Console) -> Result<Exit, Error> {
    let restored = Claim::take().and_then(|claim| claim.restore()).map_err(Error::Lab)?;
    let text = restored.map_or_else(|| "nothing was left".to_owned(), |restored| restored.to_string());
    console.write(format!("{text}\n").as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}

fn run_key(args: &KeyArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    Key::create(&args.file).map_err(Error::Lab)?;
    console.note(&format!("topstat: a new key is in {}: copy it to the other host", args.file.display()));
    Ok(Exit::Done)
}

fn wait(until: Instant, console: &mut dyn Console) -> Result<(), String> {
    loop {
        match console.wait_until(until) {
            Ok(Wake::Deadline) => return Ok(()),
            Ok(Wake::Stop | Wake::Closed) => return Err(STOPPED.to_owned()),
            Ok(Wake::Ready | Wake::Resized | Wake::Suspend) => {}
            Err(e) => return Err(format!("cannot wait: {e}")),
        }
    }
}

/// The configurations of these names; without names, all configurations.
fn configurations(names: &[String]) -> Result<Vec<Named>, Error> {
    if names.is_empty() {
        return Ok(CONFIGURATIONS.to_vec());
    }
    let known = || CONFIGURATIONS.iter().map(|(name, _)| *name);
    let of = |name: &String| {
        CONFIGURATIONS.iter().find(|(known, _)| known == name).cloned().ok_or_else(|| {
            let (all, meant) = (known().collect::<Vec<_>>().join(", "), did_you_mean(name, known()));
            Error::Usage(format!("there is no configuration '{name}' but {all}{meant}"))
        })
    };
    names.iter().map(of).collect()
}

/// Prints the tables of a directory, and draws its pictures.
fn show(directory: &Path, console: &mut dyn Console) -> Result<(), Error> {
    let results = Results::read(directory)?;
    let mut text = report::text(&results);
    for path in plot::draw(&results, directory)? {
        text += &format!("drawn: {}\n", path.display());
    }
    console.write(text.as_bytes()).map_err(Error::Output)
}

fn run_report(args: &ReportArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let Some(other) = &args.other else {
        show(&args.results, console)?;
        return Ok(Exit::Done);
    };
    let (before, after) = (Results::read(&args.results)?, Results::read(other)?);
    if before.mark.experiment != after.mark.experiment {
        let (one, two) = (&before.mark.experiment, &after.mark.experiment);
        return Err(Error::Lab(format!("cannot compare the results of {one} with those of {two}")));
    }
    console.write(report::compare(&before, &after).as_bytes()).map_err(Error::Output)?;
    Ok(Exit::Done)
}
