// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `topstat man`: the manual pages. They are made from the definition of the command line, so that they have every option.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Args, ManArgs};
use crate::console::Console;
use crate::error::{Error, Exit};

/// The part of the daemon's page that follows its options.
const DAEMON: &str = include_str!("../../../../docs/man/topstat-daemon.roff");
/// The page of the configuration file, which belongs to no command.
const CONFIGURATION: &str = include_str!("../../../../docs/man/topstat.toml.5");

pub fn run(args: &ManArgs, console: &mut dyn Console) -> Result<Exit, Error> {
    let failed = |source| Error::System { what: "write the manual pages", source };
    fs::create_dir_all(&args.directory).map_err(failed)?;
    for (name, page) in pages().map_err(failed)? {
        fs::write(Path::new(&args.directory).join(&name), page).map_err(failed)?;
        console.write(format!("{name}\n").as_bytes()).map_err(Error::Output)?;
    }
    Ok(Exit::Done)
}

/// All pages, by file name.
pub fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // `topstat help top` is `topstat top --help`: it has no separate page.
    let mut topstat = Args::command().disable_help_subcommand(true);
    topstat.build();
    let mut pages = vec![page(&topstat, "1")?];
    for command in topstat.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages.push(page(command, if command.get_name() == "daemon" { "8" } else { "1" })?);
        // The page of a command refers to the pages of its subcommands.
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            pages.push(page(command, "1")?);
        }
    }
    pages.push(("topstat.toml.5".to_owned(), CONFIGURATION.as_bytes().to_vec()));
    Ok(pages)
}

fn page(command: &clap::Command, section: &str) -> io::Result<(String, Vec<u8>)> {
    let mut command = command.clone();
    // clap_mangen refers to all subcommands in section 1. The page of topstat-daemon is in section 8: its reference is corrected
    // below.
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    command = command.after_help("").after_long_help("");
    // A summary does not end with a full stop.
    if let Some(about) = command.get_about().map(|about| about.to_string().trim_end_matches('.').to_owned()) {
        command = command.about(about);
    }
    let has_commands = command.has_subcommands();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man =
        Man::new(command).section(section).manual("topstat").source(concat!("topstat ", env!("CARGO_PKG_VERSION")));
    let mut page = b".\\\" SPDX-License-Identifier: Apache-2.0 OR MIT\n".to_vec();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        let mut commands = Vec::new();
        man.render_subcommands_section(&mut commands)?;
        let commands = String::from_utf8_lossy(&commands).replace("topstat\\-daemon(1)", "topstat\\-daemon(8)");
        page.extend_from_slice(commands.as_bytes());
    }
    page.extend_from_slice(sections(&after).as_bytes());
    if section == "8" {
        page.extend_from_slice(DAEMON.as_bytes());
    }
    Ok((format!("{name}.{section}"), page))
}

/// The text after the options in `--help`, as sections. A line without indentation is the title of a section, in capitals. The
/// lines below it keep their line breaks.
fn sections(after: &str) -> String {
    let mut text = String::new();
    let mut open = false;
    for line in after.lines() {
        let title = !line.is_empty() && !line.starts_with(' ');
        if title {
            text += if open { ".fi\n" } else { "" };
            text += &format!(".SH {}\n.nf\n", escape(line));
            open = true;
        } else if open {
            text += &format!("{}\n", escape(line.strip_prefix("  ").unwrap_or(line)));
        }
    }
    if open {
        text += ".fi\n";
    }
    text
}

/// Escapes a line for roff: nothing in it is a request, and ASCII characters stay ASCII characters.
fn escape(line: &str) -> String {
    let line = line.replace('\\', "\\(rs").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    let line = line.replace('^', "\\(ha").replace('~', "\\(ti").replace('"', "\\(dq");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        let pages = pages().unwrap();
        let (_, page) = pages.into_iter().find(|(page, _)| page == name).unwrap_or_else(|| panic!("{name}"));
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn there_is_a_page_for_every_command_and_it_mentions_every_option() {
        let mut topstat = Args::command().disable_help_subcommand(true);
        topstat.build();
        let mut seen = 0;
        for command in std::iter::once(&topstat).chain(topstat.get_subcommands().filter(|c| !c.is_hide_set())) {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            let section = if name == "topstat-daemon" { 8 } else { 1 };
            let page = page(&format!("{name}.{section}"));
            assert!(page.contains(&format!(".TH {name} {section}")), "{page}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let long = argument.get_long().map(|long| format!("\\-\\-{}", long.replace('-', "\\-")));
                let value = || argument.get_value_names().map(|names| names[0].replace('-', "\\-"));
                let shown = long.or_else(value).expect("an option or a value");
                assert!(page.contains(&shown), "{name} does not mention {shown}:\n{page}");
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen} options");
    }

    #[test]
    fn each_page_is_referred_to_by_another_and_none_that_is_not_there() {
        let pages = pages().unwrap();
        let name = |file: &str| file.rsplit_once('.').map(|(name, section)| format!("{name}({section})")).unwrap();
        let names: Vec<String> = pages.iter().map(|(file, _)| name(file)).collect();
        let mut referred = std::collections::BTreeSet::new();
        for (file, page) in &pages {
            let text = String::from_utf8_lossy(page).replace("\\-", "-");
            for word in text.split_whitespace().filter(|word| word.starts_with("topstat") && word.ends_with(')')) {
                assert!(!word.contains('(') || names.iter().any(|name| name == word), "{file} refers to {word}");
                referred.extend((word != name(file)).then(|| word.to_owned()));
            }
        }
        for name in names.iter().filter(|name| name.starts_with("topstat-")) {
            assert!(referred.contains(name), "nothing refers to {name}");
        }
    }

    #[test]
    fn examples_keep_their_lines() {
        let text = page("topstat.1");
        assert!(text.contains(".SH EXAMPLES\n.nf\ntopstat                "), "{text}");
        assert_eq!(text.matches(".nf").count(), text.matches(".fi").count());
        assert_eq!(sections("A B\n  .x 'y'\n\n  z"), ".SH A B\n.nf\n\\&.x \\(aqy\\(aq\n\nz\n.fi\n");
    }

    #[test]
    fn the_configurations_page_has_every_key() {
        let text = page("topstat.toml.5");
        for key in crate::config::keys() {
            assert!(
                text.lines().any(|line| line.starts_with(".B") && line.split([' ', '"', ',']).any(|word| word == key)),
                "{key}"
            );
        }
    }
}
