// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The addresses and ports of the connections, chosen so that ports do not run out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::config::{Config, Family, Proto, UdpServer};
use crate::error::{Error, Result};

/// Connections per address before the next address is used. The default range has 28,232 ports, and the kernel searches for a
/// free one in steps from a random start, so the search is fast while most ports of the address are free.
const CONNECTIONS_PER_ADDRESS: usize = 4_000;

/// Connections per listening port if there is only one address (`::1`), for the same reason.
const CONNECTIONS_PER_PORT: usize = 8_000;

/// The number of addresses that [`spread`] gives within one /16 before it goes on to the next.
const ADDRESSES_PER_BLOCK: usize = 250 * 250;

/// The addresses of one side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Addresses {
    /// As many as the number of connections needs.
    #[default]
    Auto,
    /// This many of 127.0.0.0/8. IPv6 has only `::1`.
    Spread(usize),
    /// The listed addresses.
    List(Vec<IpAddr>),
}

impl FromStr for Addresses {
    type Err = String;

    /// `auto`, a number, or addresses separated by commas.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "auto" {
            return Ok(Addresses::Auto);
        }
        if let Ok(count) = text.parse() {
            return Ok(Addresses::Spread(count));
        }
        text.split(',')
            .map(|one| one.trim().parse().map_err(|_| format!("'{one}' is not an IP address")))
            .collect::<std::result::Result<Vec<IpAddr>, String>>()
            .map(Addresses::List)
    }
}

/// The source and the destination of connection number `i`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub sources: Vec<IpAddr>,
    pub destinations: Vec<IpAddr>,
    /// Listening ports on every destination.
    pub ports: usize,
}

impl Endpoints {
    /// Chooses the addresses of `config`, and refuses addresses that are not local.
    pub fn choose(config: &Config) -> Result<Endpoints> {
        let v4 = config.family == Family::V4;
        let wanted = config.connections.div_ceil(CONNECTIONS_PER_ADDRESS);
        let per_client = config.proto == Proto::Udp && config.udp_server == UdpServer::PerClient;

        let destinations = resolve(&config.destinations, config.family, 128, if per_client { wanted } else { 1 })?;
        let local = destinations.iter().all(IpAddr::is_loopback);
        let sources = match &config.sources {
            // Outside loopback only the kernel knows the source address for a destination.
            Addresses::Auto if !local => vec![unspecified(config.family)],
            chosen => resolve(chosen, config.family, 1, wanted)?,
        };
        let ports = match config.ports {
            0 if v4 => 1,
            0 => config.connections.div_ceil(CONNECTIONS_PER_PORT * sources.len()),
            ports => ports,
        };
        for &addr in sources.iter().chain(&destinations) {
            if (addr.is_ipv4()) != v4 {
                return Err(Error::Config(format!("address {addr} is not of the family {}", config.family)));
            }
            let unbound = addr.is_unspecified() && config.sources == Addresses::Auto && !destinations.contains(&addr);
            if !(unbound || addr.is_loopback() || config.allow_addresses.contains(&addr)) {
                return Err(Error::NotLoopback(addr));
            }
        }
        Ok(Endpoints { sources, destinations, ports })
    }

    /// The number of server addresses and ports.
    pub fn servers(&self) -> usize {
        self.destinations.len() * self.ports
    }

    /// The source address of connection `i`.
    pub fn source(&self, i: usize) -> IpAddr {
        self.sources[i % self.sources.len()]
    }

    /// The index of the server address and port of connection `i`.
    pub fn server(&self, i: usize) -> usize {
        (i / self.sources.len()) % self.servers()
    }
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn resolve(addresses: &Addresses, family: Family, block: usize, wanted: usize) -> Result<Vec<IpAddr>> {
    let count = match addresses {
        Addresses::List(list) if list.is_empty() => {
            return Err(Error::Config("the list of addresses is empty".into()));
        }
        Addresses::List(list) => return Ok(list.clone()),
        Addresses::Spread(0) => return Err(Error::Config("at least one address is needed".into())),
        Addresses::Spread(count) => *count,
        Addresses::Auto => wanted.max(1),
    };
    match (family, addresses) {
        (Family::V6, Addresses::Spread(2..)) => {
            Err(Error::Config("IPv6 has one loopback address only (::1): list addresses, or use more ports".into()))
        }
        (Family::V6, _) => Ok(vec![Ipv6Addr::LOCALHOST.into()]),
        (Family::V4, _) if count == 1 => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
        (Family::V4, _) => (0..count).map(|i| spread(block, i)).collect(),
    }
}

/// Address `i` of the addresses from 127.`block`.0.1 on, without addresses that end in 0 or 255.
fn spread(block: usize, i: usize) -> Result<IpAddr> {
    let second = u8::try_from(block + i / ADDRESSES_PER_BLOCK)
        .map_err(|_| Error::Config(format!("127.0.0.0/8 has no {} addresses for one side", i + 1)))?;
    let rest = i % ADDRESSES_PER_BLOCK;
    Ok(Ipv4Addr::new(127, second, (rest / 250) as u8, (1 + rest % 250) as u8).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn config(connections: usize, family: Family) -> Config {
        Config { connections, family, ..Config::default() }
    }

    #[test]
    fn few_connections_use_localhost() {
        let endpoints = Endpoints::choose(&config(100, Family::V4)).unwrap();
        assert_eq!(endpoints.sources, endpoints.destinations);
        assert_eq!(endpoints.sources, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn many_connections_are_spread_evenly() {
        let endpoints = Endpoints::choose(&config(100_000, Family::V4)).unwrap();
        assert_eq!(endpoints.sources.len(), 25);
        let mut per_source = std::collections::HashMap::new();
        for i in 0..100_000 {
            *per_source.entry(endpoints.source(i)).or_insert(0) += 1;
        }
        assert!(per_source.values().all(|&count| count == 4_000));
        assert_eq!(Endpoints::choose(&config(100_000, Family::V6)).unwrap().ports, 13);
    }

    #[test]
    fn every_pair_of_addresses_is_used() {
        let config =
            Config { sources: Addresses::Spread(3), destinations: Addresses::Spread(2), ports: 2, ..Config::default() };
        let endpoints = Endpoints::choose(&config).unwrap();
        let pairs: HashSet<_> = (0..12).map(|i| (endpoints.source(i), endpoints.server(i))).collect();
        assert_eq!(pairs.len(), 12);
    }

    #[test]
    fn spread_addresses_are_different_loopback_addresses() {
        let all: HashSet<_> = (0..70_000).map(|i| spread(1, i).unwrap()).collect();
        assert_eq!(all.len(), 70_000);
        assert!(all.iter().all(IpAddr::is_loopback));
        assert!(spread(128, 128 * ADDRESSES_PER_BLOCK).is_err());
    }

    #[test]
    fn other_addresses_are_refused_unless_allowed() {
        let far: IpAddr = "192.0.2.1".parse().unwrap();
        let mut config = Config { destinations: Addresses::List(vec![far]), ..Config::default() };
        assert!(matches!(Endpoints::choose(&config), Err(Error::NotLoopback(addr)) if addr == far));
        config.allow_addresses = vec![far];
        let endpoints = Endpoints::choose(&config).unwrap();
        assert!(endpoints.sources[0].is_unspecified());
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!("auto".parse(), Ok(Addresses::Auto));
        assert_eq!("12".parse(), Ok(Addresses::Spread(12)));
        assert_eq!("::1".parse(), Ok(Addresses::List(vec![Ipv6Addr::LOCALHOST.into()])));
        assert!("127.0.0.1,x".parse::<Addresses>().is_err());
    }
}
