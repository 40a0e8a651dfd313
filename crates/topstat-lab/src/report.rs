// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results as tables: throughput by configuration, and the distribution of CPU time, beside the figures of the study.

use std::fmt::Write as _;

use topstat_model::Unit;
use topstat_model::histograms::Subject;
use topstat_model::stacks::{Category, percent};
use topstat_model::typeset::{escape, width};

use super::groups::{End, Group, RECEIVER, SENDER, groups};
use super::results::{Classified, HostFigures, Results, Run};

/// The figures of the study for one flow (Linux 5.4, Xeon 6128, 100 Gbit/s): Gbit/s per core of the side with more work.
const STUDY: [(&str, f64); 7] = [
    ("no-opts", 4.8),
    ("tsogro", 15.0),
    ("jumbo", 25.9),
    ("tsogro+jumbo", 27.6),
    ("tsogro+arfs", 28.3),
    ("jumbo+arfs", 40.8),
    ("all-opts", 41.2),
];
/// The shares of data_copy and of tcp/ip in the receiver's samples, in percent, for the first and for the last
/// configuration of [`STUDY`].
const STUDY_SHARES: [(f64, f64); 2] = [(7.4, 54.3), (54.8, 2.2)];
/// The two configurations whose shape is compared with the study. Their gain may be smaller than the study's, since the second
/// lacks aRFS.
const SHAPED: [&str; 2] = ["no-opts", "tsogro+jumbo"];
/// The least gain in throughput per core from the first to the second.
const TIMES: f64 = 5.0;
/// The least shares of samples that have to be classified, in percent: by the function's name, and by its name or the stack.
const CLASSIFIED: [f64; 2] = [90.0, 97.0];

/// The tables of these results.
pub fn text(results: &Results) -> String {
    let groups = groups(results);
    let mark = &results.mark;
    let (experiment, kernel) = (escape(&mark.experiment), escape(&mark.kernel));
    let mut text = format!("{experiment} on Linux {kernel}, {}\n\nthroughput\n", escape(&mark.time));
    let of_study = mark.experiment == "single-flow";
    let has_responses = groups.iter().any(|group| group.runs.iter().any(|run| run.responses > 0));
    let mut head = vec!["configuration", "variant", "Gbit/s", "Gbit/s per core"];
    head.extend(has_responses.then_some("responses/s"));
    head.push("study, per core");
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for group in &groups {
        let mut row = vec![group.configuration.to_owned(), group.variant.to_owned()];
        if group.runs.is_empty() {
            row.push(if group.idle > 0 { "nothing was carried" } else { "unavailable" }.to_owned());
        } else {
            row.push(group.spread(Run::gbps).text());
            row.push(group.spread(Run::gbps_per_core).text());
            #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
            let responses = |run: &Run| if run.seconds > 0.0 { run.responses as f64 / run.seconds } else { 0.0 };
            row.extend(has_responses.then(|| group.spread(responses).text()));
            let study = STUDY.iter().find(|(name, _)| of_study && *name == group.configuration);
            row.push(study.map_or_else(|| "-".to_owned(), |(_, gbps)| format!("{gbps:.1}")));
        }
        rows.push(row);
    }
    text += &table(&rows);
    text += &hosts(&groups);
    for (title, end) in [("sender", SENDER), ("receiver", RECEIVER)] {
        text += &shares(&groups, title, &end);
    }
    text += &classified(&groups);
    text += &histograms(&groups);
    if of_study {
        text += &shapes(&groups);
    }
    for group in groups.iter().filter(|group| group.idle > 0) {
        let (idle, all) = (group.idle, group.idle + group.runs.len());
        let (configuration, variant) = (escape(group.configuration), escape(group.variant));
        let _ = writeln!(
            text,
            "nothing was carried: {configuration}, {variant}: {idle} of {all} runs, which are in no figure"
        );
    }
    for group in groups.iter().filter(|group| group.runs.is_empty() && group.idle == 0) {
        let why = escape(group.unavailable.unwrap_or("not measured"));
        let _ = writeln!(text, "unavailable: {}, {}: {why}", escape(group.configuration), escape(group.variant));
    }
    text
}

/// A table of the CPUs that each of two hosts has kept busy.
fn hosts(groups: &[Group]) -> String {
    let head = ["configuration", "variant", "end", "host", "interface", "CPUs busy", "of them flows", "ksoftirqd"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for group in groups {
        for (host, end) in ["sender", "receiver"].into_iter().enumerate() {
            let Some(about) = group.runs.iter().find_map(|run| run.hosts.get(host)) else { continue };
            let cpus = |part: fn(&HostFigures) -> f64| {
                let of =
                    |run: &Run| run.hosts.get(host).map_or(0.0, |host| part(host) / run.seconds.max(f64::MIN_POSITIVE));
                group.spread(of).text()
            };
            let name = format!("{} (Linux {})", about.host, about.kernel);
            let names = [group.configuration, group.variant, end, name.as_str(), about.device.as_str()];
            let parts = [cpus(|h| h.busy_seconds), cpus(|h| h.threads_seconds), cpus(|h| h.ksoftirqd_seconds)];
            rows.push(names.map(str::to_owned).into_iter().chain(parts).collect());
        }
    }
    if rows.len() == 1 { String::new() } else { format!("\nhosts\n{}", table(&rows)) }
}

/// A table of the share of each category in the samples of an end, in percent.
fn shares(groups: &[Group], title: &str, end: &End) -> String {
    let names: Vec<&str> = Category::ALL.iter().map(|category| category.name()).chain(["unclassified"]).collect();
    let head = ["configuration", "variant", "samples"].into_iter().chain(names.iter().copied());
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for group in groups {
        let (samples, all) = group.samples(end);
        if all == 0 {
            continue;
        }
        let mut row = vec![group.configuration.to_owned(), group.variant.to_owned(), all.to_string()];
        row.extend(names.iter().map(|name| {
            let part = samples.get(name).copied().unwrap_or(0);
            format!("{:.1}", percent(part, all))
        }));
        rows.push(row);
    }
    if rows.len() == 1 { String::new() } else { format!("\n{title}, percent of samples\n{}", table(&rows)) }
}

/// A table of the shares of samples with a category, beside the required shares.
fn classified(groups: &[Group]) -> String {
    let head = ["configuration", "variant", "samples", "by name", "by name or stack"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for group in groups {
        let sum = |part: fn(&Classified) -> u64| group.runs.iter().map(|run| part(&run.classified)).sum::<u64>();
        let (all, by_name, by_caller) = (sum(|c| c.samples), sum(|c| c.by_name), sum(|c| c.by_caller));
        if all > 0 {
            let share = |part| format!("{:.1}", percent(part, all));
            let names = [group.configuration.to_owned(), group.variant.to_owned()];
            rows.push(names.into_iter().chain([all.to_string(), share(by_name), share(by_name + by_caller)]).collect());
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    let [name, stack] = CLASSIFIED;
    format!(
        "\nclassified, percent of samples (asked for: {name:.0} by name, {stack:.0} by name or stack)\n{}",
        table(&rows)
    )
}

/// A table of packet sizes and waiting times of data: the values that 50% and 99% of them are below.
fn histograms(groups: &[Group]) -> String {
    let head = ["configuration", "variant", "histogram", "count", "mean", "half below", "99% below"];
    let (mut rows, mut notes) = (vec![head.map(str::to_owned).to_vec()], String::new());
    for group in groups {
        for (name, histogram) in group.histograms() {
            let unit = unit_of(name);
            let numbers = [unit.human_rate(histogram.mean()), unit.human(histogram.part_below(50))];
            let names = [group.configuration, group.variant, name].map(str::to_owned).into_iter();
            let numbers = [histogram.count().to_string()].into_iter().chain(numbers);
            rows.push(names.chain(numbers).chain([unit.human(histogram.part_below(99))]).collect());
        }
        let beside = |name: &str| group.runs.iter().filter_map(|run| run.besides.get(name)).sum::<u64>();
        let missing: Vec<String> = ["undated", "unsplit", "unread", "lost"]
            .into_iter()
            .filter(|name| beside(name) > 0)
            .map(|name| format!("{} {name}", beside(name)))
            .collect();
        if !missing.is_empty() {
            let (configuration, variant) = (escape(group.configuration), escape(group.variant));
            let _ = writeln!(notes, "not in histograms: {configuration}, {variant}: {}", missing.join(", "));
        }
    }
    if rows.len() == 1 { String::new() } else { format!("\nhistograms\n{}{notes}", table(&rows)) }
}

/// The unit of a histogram's values.
pub fn unit_of(histogram: &str) -> Unit {
    if histogram.ends_with("_gro") { Subject::Skb.unit() } else { Subject::Latency.unit() }
}

/// The results of the study, beside the results here.
fn shapes(groups: &[Group]) -> String {
    let of = |name: &str| groups.iter().find(|group| group.configuration == name && !group.runs.is_empty());
    let (Some(plain), Some(large)) = (of(SHAPED[0]), of(SHAPED[1])) else { return String::new() };
    let gbps = [plain, large].map(|group| group.spread(Run::gbps_per_core).median);
    let times = gbps[1] / gbps[0].max(f64::MIN_POSITIVE);
    let study: Vec<f64> =
        SHAPED.iter().filter_map(|name| STUDY.iter().find(|(known, _)| known == name)).map(|s| s.1).collect();
    let head = ["shape", "asked for", "here", "study"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.push(vec![
        format!("Gbit/s per core, {} to {}", SHAPED[0], SHAPED[1]),
        format!("at least {TIMES:.0} times"),
        format!("{:.2} to {:.2}, {times:.1} times: {}", gbps[0], gbps[1], holds(times >= TIMES)),
        format!("{:.1} to {:.1}", study[0], study[1]),
    ]);
    if [plain, large].iter().all(|group| group.samples(&RECEIVER).1 > 0) {
        for ((category, rises), (first, last)) in [("data_copy", true), ("tcp/ip", false)].into_iter().zip(STUDY_SHARES)
        {
            let [before, after] = [plain, large].map(|group| {
                let (samples, all) = group.samples(&RECEIVER);
                percent(samples.get(category).copied().unwrap_or(0), all)
            });
            rows.push(vec![
                format!("receiver's share of {category}, percent"),
                if rises { "rises" } else { "falls" }.to_owned(),
                format!("{before:.1} to {after:.1}: {}", holds(if rises { after > before } else { after < before })),
                format!("{first:.1} to {last:.1} (all-opts)"),
            ]);
        }
    }
    format!("\nshapes of the study\n{}", table(&rows))
}

fn holds(does: bool) -> &'static str {
    if does { "holds" } else { "does not hold" }
}

/// Compares two results: the medians of both, and their difference.
pub fn compare(before: &Results, after: &Results) -> String {
    let head = ["configuration", "variant", "Gbit/s", "then", "per core", "then", "change"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let others = groups(after);
    for group in groups(before) {
        let same = |other: &&Group| other.configuration == group.configuration && other.variant == group.variant;
        let Some(other) = others.iter().find(same) else { continue };
        if group.runs.is_empty() || other.runs.is_empty() {
            continue;
        }
        let (was, is) = (group.spread(Run::gbps_per_core), other.spread(Run::gbps_per_core));
        // Within each other's range the difference may be chance.
        let apart = is.lowest > was.highest || is.highest < was.lowest;
        let change = if was.median > 0.0 { (is.median / was.median - 1.0) * 100.0 } else { 0.0 };
        let chance = if apart { "" } else { ", within the spread" };
        rows.push(vec![
            group.configuration.to_owned(),
            group.variant.to_owned(),
            group.spread(Run::gbps).text(),
            other.spread(Run::gbps).text(),
            was.text(),
            is.text(),
            format!("{change:+.1}%{chance}"),
        ]);
    }
    if rows.len() == 1 { "nothing was measured in both\n".to_owned() } else { table(&rows) }
}

/// Formats rows one below the other: names to the left, numbers to the right.
fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape(cell).into_owned()).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, wide)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(wide - width(cell));
            line += &if column < 2 { format!("{cell}{room}  ") } else { format!("{room}{cell}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use topstat_model::histograms::Histogram;

    use super::super::results::mark;
    use super::*;

    fn run(configuration: &str, number: u32, bytes: u64) -> Run {
        let sides = [("receive", "data_copy", 30), ("softirq_receive", "tcp/ip", 10), ("send", "skb", 7)];
        Run {
            configuration: configuration.to_owned(),
            variant: "1 flow".to_owned(),
            run: number,
            seconds: 1.0,
            bytes,
            sender_seconds: 0.5,
            receiver_seconds: 0.5,
            sides: sides.map(|(side, name, count)| (side.to_owned(), [(name.to_owned(), count)].into())).into(),
            ..Run::default()
        }
    }

    fn results(bytes: [u64; 3]) -> Results {
        let mut runs: Vec<Run> = (1..).zip(bytes).map(|(number, bytes)| run("no-opts", number, bytes)).collect();
        runs.push(Run {
            configuration: "all-opts".to_owned(),
            variant: "1 flow".to_owned(),
            unavailable: Some("lab0 does not take \x1b[31mntuple on".to_owned()),
            ..Run::default()
        });
        Results { mark: mark("single-flow"), runs }
    }

    #[test]
    fn tables_have_medians_with_their_spread_and_the_study_beside() {
        let text = text(&results([125_000_000, 250_000_000, 500_000_000]));
        let line =
            |begins: &str| text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{text}"));
        assert!(line("no-opts").contains("2.00 (1.00 - 4.00)") && line("no-opts").ends_with("4.8"), "{text}");
        assert!(line("all-opts").ends_with("unavailable"), "{text}");
        assert!(text.contains("unavailable: all-opts, 1 flow: lab0 does not take \\x1b[31mntuple on"), "{text}");
        let receiver = text.split("receiver, percent of samples\n").nth(1).unwrap();
        let cells: Vec<&str> = receiver.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = ["no-opts", "1", "flow", "120", "75.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "25.0", "0.0"];
        assert_eq!(cells, expected, "{text}");
    }

    /// The lines of the tables, with one space between words.
    fn lines(results: &Results) -> Vec<String> {
        let one_space = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text(results).lines().map(one_space).collect()
    }

    #[test]
    fn a_run_that_carried_nothing_is_in_no_figure() {
        let some = lines(&results([125_000_000, 0, 125_000_000]));
        assert!(some.contains(&"no-opts 1 flow 1.00 1.00 4.8".to_owned()), "{some:#?}");
        let said = "nothing was carried: no-opts, 1 flow: 1 of 3 runs, which are in no figure";
        assert!(some.contains(&said.to_owned()), "{some:#?}");
        let none = lines(&results([0; 3]));
        assert!(none.contains(&"no-opts 1 flow nothing was carried".to_owned()), "{none:#?}");
        assert!(none.contains(&said.replace("1 of 3", "3 of 3")), "{none:#?}");
    }

    #[test]
    fn shapes_classified_shares_and_histograms_stand_beside_what_is_asked_for() {
        let mut runs = vec![run("no-opts", 1, 125_000_000), run("tsogro+jumbo", 1, 1_250_000_000)];
        runs[1].sides.insert("softirq_receive".to_owned(), [("tcp/ip".to_owned(), 1)].into());
        for run in &mut runs {
            run.classified = Classified { samples: 1000, by_name: 950, by_caller: 30 };
            let histogram = Histogram { buckets: vec![0, 0, 1, 99], sum: 600 };
            run.histograms = [("after_gro".to_owned(), histogram.clone()), ("latency".to_owned(), histogram)].into();
            run.besides = [("undated".to_owned(), 4), ("bytes".to_owned(), 7)].into();
        }
        let lines = lines(&Results { mark: mark("single-flow"), runs });
        for wanted in [
            "tsogro+jumbo 1 flow 1000 95.0 98.0",
            "no-opts 1 flow after_gro 100 6B 8B 8B",
            "no-opts 1 flow latency 100 6ns 8ns 8ns",
            "not in histograms: no-opts, 1 flow: 4 undated",
            "10.0 times: holds",
            "75.0 to 96.8: holds",
            "25.0 to 3.2: holds",
        ] {
            assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {lines:#?}");
        }
    }

    #[test]
    fn of_two_hosts_each_has_its_own_samples_and_cpus() {
        let host = |host: &str, busy_seconds, side: &str, copied| HostFigures {
            host: host.to_owned(),
            kernel: "6.1".to_owned(),
            device: "eth1".to_owned(),
            busy_seconds,
            sides: [(side.to_owned(), [("data_copy".to_owned(), copied), ("etc".to_owned(), 1)].into())].into(),
            ..HostFigures::default()
        };
        // Packets that arrive at the sender are counted for the sender.
        let hosts = vec![host("one\x1b", 1.5, "softirq_receive", 3), host("two", 0.5, "receive", 1)];
        let runs = vec![Run { hosts, ..run("jumbo", 1, 250_000_000) }];
        let lines = lines(&Results { mark: mark("incast"), runs });
        for wanted in [
            "jumbo 1 flow 2.00 1.00 -",
            "jumbo 1 flow sender one\\x1b (Linux 6.1) eth1 1.50 0.00 0.00",
            "jumbo 1 flow receiver two (Linux 6.1) eth1 0.50 0.00 0.00",
            "jumbo 1 flow 4 75.0 25.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0",
            "jumbo 1 flow 2 50.0 50.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0",
        ] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted}: {lines:#?}");
        }
    }

    #[test]
    fn a_change_within_the_spread_is_said_to_be() {
        let before = results([125_000_000, 250_000_000, 500_000_000]);
        let near = compare(&before, &results([250_000_000, 250_000_000, 250_000_000]));
        assert!(near.contains("+0.0%, within the spread"), "{near}");
        let far = compare(&before, &results([1_000_000_000; 3]));
        assert!(far.contains("+300.0%\n"), "{far}");
        let other = Results { runs: vec![run("jumbo", 1, 5)], ..before.clone() };
        assert_eq!(compare(&before, &other), "nothing was measured in both\n");
    }
}
