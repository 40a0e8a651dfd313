// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;

use super::*;

fn keys() -> Vec<Key> {
    let key = |name, kind, alias: Option<&str>| Key::new(Column::new(name, kind), alias.map(str::to_owned));
    vec![
        key("sip", ColumnKind::Address, Some("ip")),
        key("sport", ColumnKind::Port, Some("port")),
        key("dip", ColumnKind::Address, Some("ip")),
        key("dport", ColumnKind::Port, Some("port")),
        key("comm", ColumnKind::Text, None),
        key("cgroup", ColumnKind::Path, None),
        key("lived_ns", ColumnKind::Id, None),
        key("container", ColumnKind::Id, None),
        key("closed", ColumnKind::Mark, None),
        key("lost", ColumnKind::Mark, None),
    ]
}

fn fields() -> Vec<Field> {
    let ip = |text: &str| Field::Ip(text.parse().unwrap());
    vec![
        ip("10.1.2.3"),
        443_u16.into(),
        ip("2001:db8::7"),
        40_000_u16.into(),
        "a longer name o".into(),
        "/system.slice/nginx.service".into(),
        1_500_000_u64.into(),
        Field::None,
        Field::True,
        Field::None,
    ]
}

fn matches(text: &str) -> bool {
    let filter: Filter = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    filter.check(&keys()).unwrap_or_else(|e| panic!("{text}: {e}"));
    filter.resolve(&keys()).unwrap().matches(&fields())
}

fn fault(text: &str) -> String {
    let wrong = text.parse::<Filter>().and_then(|filter| filter.check(&keys()));
    wrong.expect_err(text).to_string()
}

#[test]
fn what_is_asked_for_matches() {
    for text in [
        "",
        "   ",
        "port:443",
        "port:1,443",
        "sport:443 dport:40k",
        "dport=40000",
        "port>443",
        "port>=40000 sport<=443 sport<444",
        "ip:10.0.0.0/8",
        "ip:2001:db8::/32",
        "ip:0.0.0.0/0",
        "ip=10.1.2.3",
        "comm:\"a longer name o\"",
        "comm:\"a longer name of all\"",
        "comm:a*name*o",
        "comm:*",
        "comm~longer",
        "cgroup:/system.slice",
        "cgroup:/system.slice/",
        "cgroup:nginx",
        "cgroup=/system.slice/nginx.service",
        "lived_ns>1ms lived_ns<1.6ms lived_ns=1500us",
        "lived_ns>=1.5M",
        "!port:22",
        "port!=22",
        "!container:abc",
        "nginx 40000",
        "!apache",
        "ip~db8",
        "\"longer name\"",
        "container!=abc",
        "closed:yes lost:no",
        "closed=yes lost!=yes !closed:no",
    ] {
        assert!(matches(text), "{text}");
    }
}

#[test]
fn what_is_not_asked_for_does_not() {
    for text in [
        "port:22",
        "sport:40000",
        "port:443 comm:nginx",
        "ip:10.2.0.0/16",
        "ip:10.1.2.4",
        "cgroup:/system.slice/nginx",
        "cgroup=/system.slice",
        "comm:longer",
        "comm=a*",
        "lived_ns>1s",
        "container:abc",
        "!nginx",
        "port!=443,22",
        "closed:no",
        "lost:yes",
        "!closed:yes",
        "apache",
        "yes",
    ] {
        assert!(!matches(text), "{text}");
    }
}

#[test]
fn a_wrong_filter_says_where() {
    for (text, wrong) in [
        ("port:", "at character 6: a value is missing here"),
        ("port:22,", "at character 9: a value is missing here"),
        ("port:443 comm:\"x", "at character 15: the quote that begins here does not end"),
        ("comm:\"a\"b", "at character 9: after a quote there is a space, a comma or the end"),
        ("comm:a\"b", "at character 7: a quote stands at the beginning of a value, or in quotes as \\\""),
        ("comm:\"a\\n\"", "at character 9: in quotes, \\ stands before \" or \\ only"),
        ("port<1,2", "at character 7: < compares with one value"),
        (
            "port:http",
            "at character 6: \"http\" is no number; a unit is one of k M G T Ki Mi Gi Ti, or of a time ns us ms s m h",
        ),
        ("port:1.5.2", "at character 6: \"1.5.2\" is no number from 0 to 2^64"),
        ("port:2ms", "at character 6: sport is no time, and has no unit ms"),
        ("ip:10.0.0", "at character 4: \"10.0.0\" is no address (10.0.0.1, 2001:db8::1) and no network (10.0.0.0/8)"),
        ("ip:10.0.0.0/33", "at character 4: \"10.0.0.0/33\": a network of this kind has 0 to 32 bits"),
        ("closed:1", "at character 8: closed is asked for by closed:yes or closed:no"),
        ("closed~yes", "at character 8: closed is asked for by closed:yes or closed:no"),
        ("comm>x", "at character 6: comm is no number, and can't be compared"),
        (
            "ä prot:22",
            "at character 3: there is no column \"prot\"; there are: cgroup, closed, comm, container, dip, dport, ip, lived_ns, \
             lost, port, sip, sport",
        ),
        ("!", "at character 2: a value is missing here"),
    ] {
        assert_eq!(fault(text), wrong, "{text}");
    }
}

#[test]
fn what_has_no_such_column_is_not_matched() {
    let only = &keys()[4..5];
    let matches = |text: &str| {
        let filter: Filter = text.parse().unwrap();
        filter.resolve(only).unwrap().matches(&[Field::from("nginx")])
    };
    assert!(matches("comm:nginx !port:22") && !matches("port:22") && !matches("comm:nginx port>0"));
}

proptest! {
    #[test]
    fn no_text_makes_it_fall(text in "\\PC{0,40}") {
        if let Ok(filter) = text.parse::<Filter>()
            && let Ok(resolved) = filter.resolve(&keys())
        {
            resolved.matches(&fields());
        }
    }

    #[test]
    fn quoted_values_are_what_they_quote(value in "\\PC{1,20}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
        let filter: Filter = format!("comm=\"{quoted}\"").parse().unwrap();
        let resolved = filter.resolve(&[Key::new(Column::new("name", ColumnKind::Text), None)]).unwrap();
        // The key belongs to another column.
        prop_assert!(!resolved.matches(&[Field::from(value.as_str())]));
        let filter: Filter = format!("name=\"{quoted}\"").parse().unwrap();
        let resolved = filter.resolve(&[Key::new(Column::new("name", ColumnKind::Text), None)]).unwrap();
        prop_assert!(resolved.matches(&[Field::from(value.as_str())]));
    }

    #[test]
    fn a_fault_is_within_the_text(text in "[a-z:,=!\"<> \\\\ä]{0,20}") {
        if let Err(fault) = text.parse::<Filter>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&fault.at), "{fault}");
        }
    }
}

#[test]
fn what_other_languages_write_between_terms_is_no_text() {
    for (text, at) in [
        ("((", 1),
        ("port:443 &&", 10),
        ("port:443 && comm:nginx", 10),
        ("port:443 || port:80", 10),
        ("(port:443)", 1),
        ("!(nginx)", 2),
        ("port:443 and comm:nginx", 10),
        ("port:443 OR port:80", 10),
        ("not nginx", 1),
    ] {
        let fault = text.parse::<Filter>().expect_err(text);
        assert_eq!(fault.at, at, "{text}: {fault}");
        assert!(fault.why.contains("terms side by side must all match") && fault.why.contains("quotes"), "{fault}");
    }
    for text in ["\"((\"", "or", "\"and\" nginx", "oracle", "comm:(sd-pam)", "cgroup~a&b"] {
        assert!(text.parse::<Filter>().is_ok(), "{text}");
    }
}
