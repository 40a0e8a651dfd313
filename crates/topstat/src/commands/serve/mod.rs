// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat serve` and `topstat watch`: the daemon's tree, read by its files, for other programs.

mod past;
mod source;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use topstat_serve::watch::{self, Action, Rule};
use topstat_serve::{Config, Listen, Otlp, TlsFiles, Token, access};

use crate::args::serve::{ServeArgs, WatchArgs};
use crate::config::Level;
use crate::daemon::logging;
use crate::error::{Error, Exit};
use crate::resolve;
use source::TreeSource;

pub fn serve(args: &ServeArgs) -> Result<Exit, Error> {
    let unix = Listen::Unix(args.socket.clone(), args.socket_mode);
    let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let tls = tls.map(|(cert, key)| access::tls(TlsFiles { cert, key, client_ca: args.tls_client_ca.as_deref() }));
    let headers = args.otlp_headers_file.as_deref();
    let otlp = |url: &String| Otlp::new(url, args.otlp_interval, tables(&args.otlp_logs), headers);
    let otlp = args.otlp.as_ref().map(otlp);
    let config = Config {
        listen: args.listen.iter().copied().map(Listen::Tcp).chain([unix]).collect(),
        token: args.token_file.as_deref().map(Token::read).transpose()?,
        tls: tls.transpose()?,
        certificates: args.tls_client_ca.is_some(),
        hosts: args.host.clone(),
        metrics: args.metrics.clone(),
        objects: tables(&args.objects),
        otlp: otlp.transpose()?,
    };
    logging::begin(Level::default());
    let stop = Arc::new(AtomicBool::new(false));
    let source = TreeSource::new(&args.mount.dir(), args.history.dir(), Arc::clone(&stop));
    topstat_serve::serve(config, Arc::new(source), &stop)?;
    Ok(Exit::Done)
}

/// The paths of tables by their names, of which `tcp` means several.
fn tables(names: &[String]) -> Vec<String> {
    let mut paths = Vec::new();
    for name in names {
        // A table of the user's own is known to the daemon alone.
        let found = resolve::tables(&topstat_families::catalogue().samples(), name, None);
        paths.extend(found.map_or_else(|_| vec![name.clone()], |found| found.iter().map(|one| one.path()).collect()));
    }
    paths
}

pub fn watch(args: &WatchArgs) -> Result<Exit, Error> {
    let rule = |text: &String| {
        let rule = text.parse::<Rule>().map_err(|wrong| Error::Usage(format!("{text:?}: {wrong}")))?;
        Ok::<_, Error>(rule.over(|name| tables(&[name.to_owned()])))
    };
    let rules = args.conditions.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
    logging::begin(Level::default());
    let stop = Arc::new(AtomicBool::new(false));
    let source = TreeSource::new(&args.mount.dir(), "".as_ref(), Arc::clone(&stop));
    let exec = args.exec.iter().cloned().map(Action::Exec);
    let actions = exec.chain(args.webhook.iter().cloned().map(Action::Webhook)).collect();
    let options = watch::Options { interval: args.interval, every: args.every, resolved: args.resolved, actions };
    watch::run(rules, &options, &source, &stop)?;
    Ok(Exit::Done)
}
