// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of an output that hold for all names in it, and the effects of options.

use topstat_model::text::{self, TextOptions};
use topstat_model::{Field, Format, Sink, Snapshot, Space, json, stat, typeset};

use crate::fixtures;

fn as_text(snapshot: &Snapshot, options: TextOptions) -> String {
    let mut written = Vec::new();
    text::write(snapshot, options, &mut written).unwrap();
    String::from_utf8(written).unwrap()
}

fn as_csv(sink: &mut Sink, snapshot: &Snapshot) -> String {
    String::from_utf8(sink.write(&[snapshot], Space::default()).unwrap()).unwrap()
}

fn csv() -> Sink {
    Sink::new(Format::Csv, TextOptions::default())
}

fn as_stat(snapshot: &Snapshot) -> String {
    let mut written = Vec::new();
    stat::write(snapshot, &mut written).unwrap();
    String::from_utf8(written).unwrap()
}

fn as_json(snapshot: &Snapshot) -> String {
    let mut written = Vec::new();
    json::write(snapshot, &mut written).unwrap();
    String::from_utf8(written).unwrap()
}

/// The document of the design, byte for byte except `proven`.
#[test]
fn json_is_as_designed() {
    let nginx = fixtures::connection("10.0.0.1", "10.0.0.2", 4242, "nginx", "/system.slice/nginx.service");
    let mut snapshot = fixtures::with_rows(vec![(990, nginx)], 123_456);
    snapshot.objects = 5000;
    snapshot.rows[0].parts = vec![490, 500];
    snapshot.cpus.remove(1);
    snapshot.cpus[0].total = 60_000;
    snapshot.cpus[1].total = 63_456;
    snapshot.check().unwrap();
    let designed = concat!(
        r#"{"time":"2026-11-21T08:00:00.000Z","sample":"tcp_v4","table":"conns_pps","type":"dynamic","#,
        r#""unit":"packets","period_ms":1000,"delay_ms":0,"top":128,"objects":5000,"total":123456,"#,
        r#""other":122466,"proven":1,"lost":{"contended":0,"no_memory":0},"lost_now":{"contended":0,"no_memory":0},"#,
        r#""rows":[{"rank":1,"value":990,"object":{"sip":"10.0.0.1","sport":80,"dip":"10.0.0.2","#,
        r#""dport":4242,"pid":77,"comm":"nginx","cgroup":"/system.slice/nginx.service","#,
        r#""netns":4026531840},"rx":490,"tx":500,"cpus":[0,3]}],"cpu_totals":{"0":60000,"3":63456}}"#,
        "\n"
    );
    assert_eq!(as_json(&snapshot), designed);
}

#[test]
fn json_gives_back_what_it_escapes() {
    let mut snapshot = fixtures::weird();
    let name = "\x7f\u{9b}2J\u{202e}\u{e0041}\"\\🦀";
    snapshot.rows[0].object[5] = Field::from(name);
    let line = as_json(&snapshot);
    assert!(line.contains(r#""comm":"\u007f\u009b2J\u202e\udb40\udc41\"\\🦀""#), "{line}");
    let document: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(document["rows"][0]["object"]["comm"], name);
}

#[test]
fn nothing_written_can_control_a_terminal() {
    let weird = fixtures::weird();
    let outputs = [as_text(&weird, TextOptions::default()), as_csv(&mut csv(), &weird), as_stat(&weird)];
    for output in outputs {
        let left = output.replace(['\n', '\t'], "");
        assert_eq!(typeset::escape(&left), left);
    }
}

#[test]
fn csv_has_one_record_per_line_whatever_the_names() {
    let weird = fixtures::weird();
    let written = as_csv(&mut csv(), &weird);
    // Header, rows, other, total.
    assert_eq!(written.lines().count(), 1 + weird.rows.len() + 2);
    let mut reader = ::csv::Reader::from_reader(written.as_bytes());
    let cells = reader.headers().unwrap().len();
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert!(records.iter().all(|record| record.len() == cells));
    let value = |record: &::csv::StringRecord| record[4].parse::<u64>().unwrap();
    let (total, parts) = records.split_last().unwrap();
    assert_eq!(&total[3], "total");
    assert_eq!(parts.iter().map(value).sum::<u64>(), value(total));
}

#[test]
fn csv_goes_on_without_a_header() {
    let snapshot = fixtures::v4();
    let mut csv = csv();
    let (first, next) = (as_csv(&mut csv, &snapshot), as_csv(&mut csv, &snapshot));
    assert_eq!(first.split_once('\n').unwrap().1, next);
}

#[test]
fn stat_keeps_its_tabs_whatever_the_names() {
    let weird = fixtures::weird();
    let written = as_stat(&weird);
    let paragraphs: Vec<_> = written.split("\n\n").collect();
    let [header, cpu_0, cpu_3, all, sums] = paragraphs[..] else {
        panic!("{} paragraphs", paragraphs.len());
    };
    assert_eq!(header.lines().count(), 8);
    for section in [cpu_0, cpu_3, all] {
        let rows: Vec<_> = section.lines().skip(1).collect();
        assert!(rows.iter().all(|row| row.split('\t').count() == weird.columns.len() + 1), "{section}");
    }
    assert_eq!(all.lines().count(), 2 + weird.rows.len());
    assert_eq!(sums, "total\t150\nother\t0\n");
}

#[test]
fn text_lines_up_by_cells_not_bytes() {
    let written = as_text(&fixtures::weird(), TextOptions::default());
    let netns: Vec<_> =
        written.lines().filter_map(|line| line.find("4026531840").map(|at| typeset::width(&line[..at]))).collect();
    assert_eq!(netns.len(), 4);
    assert!(netns.iter().all(|cell| cell == &netns[0]), "{netns:?}\n{written}");
}

#[test]
fn addresses_survive_any_width() {
    for width in 0..200 {
        let options = TextOptions { width: Some(width), ..TextOptions::default() };
        let written = as_text(&fixtures::v6(), options);
        assert!(written.contains("fe80::aaaa:bbbb:cccc:dddd"), "at {width}");
        assert!(written.contains("9007199254740993"), "at {width}");
    }
}

#[test]
fn lines_fit_where_names_can_be_shortened() {
    let full = as_text(&fixtures::v4(), TextOptions::default());
    let widest = full.lines().map(typeset::width).max().unwrap();
    let options = TextOptions { width: Some(widest - 10), ..TextOptions::default() };
    let narrow = as_text(&fixtures::v4(), options);
    assert_eq!(narrow.lines().map(typeset::width).max(), Some(widest - 10), "{narrow}");
    let options = TextOptions { width: Some(widest), ..TextOptions::default() };
    assert_eq!(as_text(&fixtures::v4(), options), full);
}

#[test]
fn empty_tables_say_why() {
    let mut none = fixtures::v4();
    none.retain("pid=1", |object, _| object[4] == Field::U64(1));
    let written = as_text(&none, TextOptions::default());
    assert!(written.contains("no rows: none of 3 matches\n"), "{written}");
    assert!(written.contains("\nother  123456\ntotal  123456\n"), "{written}");
}

#[test]
fn color_is_only_there_when_asked_for() {
    let options = TextOptions { human: true, ..TextOptions::default() };
    assert!(!as_text(&fixtures::v4(), options).contains('\x1b'));
    let colored = as_text(&fixtures::v4(), TextOptions { color: true, ..options });
    assert!(colored.contains("\x1b[1m"));
    assert_eq!(colored.matches("\x1b[0m").count() * 2, colored.matches('\x1b').count());
}
