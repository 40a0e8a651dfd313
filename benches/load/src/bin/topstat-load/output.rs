// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result as JSON, and as a few lines of text.

use serde_json::{Value, json};
use topstat_load::{Load, RunReport};

use crate::args::Args;

/// The JSON document.
pub fn document(load: &Load, args: &Args, report: &RunReport) -> Value {
    let config = load.config();
    let mut document = json!({
        "config": {
            "mode": config.mode,
            "proto": config.proto,
            "family": config.family,
            "udp_server": config.udp_server,
            "connections": config.connections,
            "request_bytes": config.request_size,
            "response_bytes": config.response_bytes(),
            "client_cpu": config.client_cpu,
            "server_cpu": config.server_cpu,
        },
        "opened_in_s": load.opened_in().as_secs_f64(),
        "totals": report,
    });
    if args.per_connection {
        document["connections"] = json!(report.connections);
    }
    document
}

/// The opened connections, in one line.
pub fn opened(load: &Load) -> String {
    let (count, time) = (load.connections().len(), load.opened_in().as_secs_f64());
    format!("{count} connections opened in {time:.3} s ({:.0}/s)", count as f64 / time)
}

/// The results, in a few lines.
pub fn summary(report: &RunReport) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let latency = &report.latency;
    let mut text = format!(
        "{} transactions in {:.3} s: {:.0}/s, {} bytes sent, {} received\n\
         latency µs: p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}\n\
         CPU s: {:.2} user, {:.2} system; host {:.2} busy, {:.2} stolen",
        report.transactions,
        report.elapsed.as_secs_f64(),
        report.rate,
        report.bytes_sent,
        report.bytes_received,
        us(latency.p50_ns),
        us(latency.p90_ns),
        us(latency.p99_ns),
        us(latency.p999_ns),
        us(latency.max_ns),
        seconds(report.cpu.user_ns),
        seconds(report.cpu.system_ns),
        seconds(report.cpu.host.busy_ns()),
        seconds(report.cpu.host.steal_ns),
    );
    let rest = [
        (report.churned, "connections replaced"),
        (report.lost, "transactions lost"),
        (report.failed, "connections failed"),
        (report.unfinished, "transactions unfinished"),
        (report.skipped, "transactions skipped"),
    ];
    for (count, what) in rest.into_iter().filter(|&(count, _)| count > 0) {
        text += &format!("\n{count} {what}");
    }
    text
}
