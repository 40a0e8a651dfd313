// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws results as pictures (SVG): throughput per core, and the stacked categories of each side.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use topstat_model::Unit;
use topstat_model::histograms::Histogram;
use topstat_model::stacks::{Category, percent};

use super::groups::{End, Group, RECEIVER, SENDER, groups};
use super::report::unit_of;
use super::results::{Results, Run};
use crate::error::Error;

/// The sizes of a picture, in pixels: a bar, the space beside the bars, and the height.
const BAR: u32 = 90;
const BESIDE: u32 = 260;
const HEIGHT: u32 = 480;
/// The heights of titles' letters, the margin around a chart, and the space for a legend, in pixels.
const TITLE: u32 = 18;
const PANEL_TITLE: u32 = 13;
const MARGIN: u32 = 10;
const LEGEND: u32 = 150;

/// The width of a title in letters of this height, in pixels. In the widest of usual typefaces the mean width of a letter is 0.6
/// of its height.
fn title_width(title: &str, height: u32) -> u32 {
    (u32::try_from(title.chars().count()).unwrap_or(u32::MAX).saturating_mul(height) * 6).div_ceil(10)
}

/// The colours of the categories, and of samples without a category. People who see few colours can distinguish them (Okabe and
/// Ito).
const COLORS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(153, 153, 153),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(240, 228, 66),
    RGBColor(0, 158, 115),
    RGBColor(60, 60, 60),
];

/// Draws all pictures of these results into a directory, and returns their paths.
///
/// # Errors
///
/// When a picture can't be written.
pub fn draw(results: &Results, directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let groups = groups(results);
    let measured: Vec<&Group> = groups.iter().filter(|group| !group.runs.is_empty()).collect();
    if measured.is_empty() {
        return Ok(Vec::new());
    }
    let mut drawn = Vec::new();
    let mut write = |name: &str, picture: String| {
        let path = directory.join(name);
        std::fs::write(&path, picture).map_err(|e| Error::File { path: path.clone(), why: e.to_string() })?;
        drawn.push(path);
        Ok::<(), Error>(())
    };
    let title = format!("{}: Gbit/s per core", results.mark.experiment);
    let drawing = picture(measured.len(), &title, MARGIN, |area| throughput(area, &title, &measured))?;
    write("throughput.svg", drawing)?;
    for (name, end) in [("sender", SENDER), ("receiver", RECEIVER)] {
        let sampled: Vec<&Group> = measured.iter().copied().filter(|group| group.samples(&end).1 > 0).collect();
        if !sampled.is_empty() {
            let title = format!("{}: where the {name} spends its CPU time, in percent", results.mark.experiment);
            let drawing = picture(sampled.len(), &title, LEGEND, |area| stacked(area, &title, &sampled, &end))?;
            write(&format!("{name}.svg"), drawing)?;
        }
    }
    for (subject, names) in [("skb", &SIZES[..]), ("latency", &TIMES[..])] {
        let counted: Vec<(&Group, BTreeMap<&str, Histogram>)> = measured
            .iter()
            .map(|group| (*group, group.histograms()))
            .filter(|(_, h)| h.contains_key(names[0]))
            .collect();
        if !counted.is_empty() {
            write(&format!("{subject}.svg"), panels(&counted, names, &measured)?)?;
        }
    }
    Ok(drawn)
}

/// The histograms that are drawn side by side.
const SIZES: [&str; 2] = ["before_gro", "after_gro"];
const TIMES: [&str; 3] = ["latency", "scheduling", "queueing"];
/// The size of each histogram in pixels, and the most rows of histograms in a picture.
const PANEL: (u32, u32) = (360, 170);
const MOST_PANELS: usize = 64;

/// A row of histograms for each group: counts by powers of two.
fn panels(counted: &[(&Group, BTreeMap<&str, Histogram>)], names: &[&str], all: &[&Group]) -> Result<String, Error> {
    let rows = counted.len().min(MOST_PANELS);
    let cells = |number: usize, each: u32| each * u32::try_from(number).unwrap_or(1);
    let title = |group, name: &str| format!("{}: {name}", label(group, all));
    let titles = counted.iter().flat_map(|(group, _)| names.iter().map(|name| title(group, name)));
    let width = titles.map(|title| title_width(&title, PANEL_TITLE) + 2 * MARGIN).max().unwrap_or(0).max(PANEL.0);
    drawing((cells(names.len(), width), cells(rows, PANEL.1)), |area| {
        let panels = area.split_evenly((rows, names.len()));
        let wanted = counted.iter().flat_map(|(group, histograms)| names.iter().map(move |n| (group, histograms, *n)));
        for (panel, (group, histograms, name)) in panels.iter().zip(wanted) {
            let empty = Histogram::default();
            let histogram = histograms.get(name).unwrap_or(&empty);
            bars(panel, &title(group, name), histogram, unit_of(name))?;
        }
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss, reason = "drawn in few cells")]
fn bars(area: &Area, title: &str, histogram: &Histogram, unit: Unit) -> Drawn {
    let first = histogram.buckets.iter().position(|count| *count > 0).unwrap_or(0);
    let end = histogram.buckets.len().max(first + 1);
    let most = histogram.buckets.iter().copied().max().unwrap_or(0).max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", PANEL_TITLE))
        .margin(6)
        .x_label_area_size(22)
        .y_label_area_size(46)
        .build_cartesian_2d(first as f64..end as f64, 0.0..most * 1.05)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among few bars")]
    let name = |at: &f64| unit.human(Histogram::bounds(*at as usize).0);
    chart.configure_mesh().disable_x_mesh().x_labels(5).y_labels(4).x_label_formatter(&name).draw()?;
    for (bucket, count) in histogram.buckets.iter().enumerate().skip(first) {
        let (left, right) = (bucket as f64 + 0.05, bucket as f64 + 0.95);
        chart.draw_series([Rectangle::new([(left, 0.0), (right, *count as f64)], COLORS[0].filled())])?;
    }
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A picture wide enough for its bars and for its title, which is centred between the margins.
fn picture(bars: usize, title: &str, right: u32, draw: impl FnOnce(&Area) -> Drawn) -> Result<String, Error> {
    let width = BESIDE + BAR * u32::try_from(bars).unwrap_or(100).min(100);
    drawing((width.max(MARGIN + title_width(title, TITLE) + right), HEIGHT), draw)
}

fn drawing(size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn) -> Result<String, Error> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area)).and_then(|()| Ok(area.present()?));
    drop(area);
    drawn.map_err(|e| Error::Lab(format!("cannot draw: {e}")))?;
    Ok(text)
}

/// The label of a bar.
fn label(group: &Group, all: &[&Group]) -> String {
    let one_variant = all.iter().all(|other| other.variant == group.variant);
    if one_variant { group.configuration.to_owned() } else { format!("{} {}", group.configuration, group.variant) }
}

fn place(at: f64, groups: &[&Group]) -> String {
    let middle = (at.fract() - 0.5).abs() < 0.01;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among few bars")]
    let group = groups.get(at as usize).filter(|_| middle && at >= 0.0);
    group.map_or_else(String::new, |group| label(group, groups))
}

#[expect(clippy::cast_precision_loss, reason = "few bars")]
fn throughput(area: &Area, title: &str, groups: &[&Group]) -> Drawn {
    let spreads: Vec<_> = groups.iter().map(|group| group.spread(Run::gbps_per_core)).collect();
    let most = spreads.iter().map(|spread| spread.highest).fold(0.1, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", TITLE))
        .margin(MARGIN)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..most)?;
    let name = |at: &f64| place(*at, groups);
    chart.configure_mesh().disable_x_mesh().x_labels(2 * groups.len() + 1).x_label_formatter(&name).draw()?;
    for (number, spread) in spreads.iter().enumerate() {
        let (left, right) = (number as f64 + 0.15, number as f64 + 0.85);
        chart.draw_series([Rectangle::new([(left, 0.0), (right, spread.median)], COLORS[0].filled())])?;
        let middle = number as f64 + 0.5;
        chart.draw_series([PathElement::new(vec![(middle, spread.lowest), (middle, spread.highest)], BLACK)])?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "few bars")]
fn stacked(area: &Area, title: &str, groups: &[&Group], end: &End) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", TITLE))
        .margin(MARGIN)
        .margin_right(LEGEND)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..100.0)?;
    let name = |at: &f64| place(*at, groups);
    chart.configure_mesh().disable_x_mesh().x_labels(2 * groups.len() + 1).x_label_formatter(&name).draw()?;
    let mut below = vec![0.0; groups.len()];
    let names = Category::ALL.iter().map(|category| category.name()).chain(["unclassified"]);
    for (row, (category, color)) in (0..).zip(names.zip(COLORS)) {
        let mut bars = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let (samples, all) = group.samples(end);
            let share = percent(samples.get(category).copied().unwrap_or(0), all);
            let (left, right) = (number as f64 + 0.15, number as f64 + 0.85);
            bars.push(Rectangle::new([(left, below[number]), (right, below[number] + share)], color.filled()));
            below[number] += share;
        }
        chart.draw_series(bars)?;
        let (width, _) = area.dim_in_pixel();
        let (x, y) = (i32::try_from(width)? - 140, 50 + 20 * row);
        area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color.filled()))?;
        area.draw(&Text::new(category.to_owned(), (x + 18, y), ("sans-serif", 13)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::results::mark;
    use super::*;

    /// Checks that no text of a picture begins or ends outside the picture.
    fn all_is_inside(svg: &str) {
        let number = |tag: &str, name: &str| {
            let value = tag.split(&format!(" {name}=\"")).nth(1).expect(name).split('"').next().expect("a value");
            value.parse::<f64>().expect("a number")
        };
        let picture = number(svg.split('>').next().expect("a tag"), "width");
        let mut texts = 0;
        for part in svg.split("<text ").skip(1) {
            let (tag, rest) = part.split_once('>').expect("a tag");
            let tag = format!(" {tag}");
            let text = rest.split('<').next().expect("a text").trim();
            let (at, height) = (number(&tag, "x"), number(&tag, "font-size"));
            // The width is computed for the narrowest of usual typefaces: a text that is outside with it is outside with all.
            let width = text.chars().count() as f64 * height / 1.241 * 0.5;
            let left = match tag.split(" text-anchor=\"").nth(1).and_then(|anchor| anchor.split('"').next()) {
                Some("middle") => at - width / 2.0,
                Some("end") => at - width,
                _ => at,
            };
            assert!(left >= 0.0 && left + width <= picture, "{text:?} is from {left} to {} of {picture}", left + width);
            texts += 1;
        }
        assert!(texts > 0, "{svg}");
    }

    #[test]
    fn pictures_are_drawn_of_what_was_measured() {
        let folder = std::env::temp_dir().join(format!("topstat-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sides = [("receive".to_owned(), [("data_copy".to_owned(), 3), ("unclassified".to_owned(), 1)].into())];
        let run = Run {
            configuration: "jumbo".to_owned(),
            variant: "1 flow".to_owned(),
            seconds: 1.0,
            bytes: 1 << 30,
            sender_seconds: 1.0,
            sides: sides.into(),
            histograms: [("before_gro".to_owned(), Histogram { buckets: vec![0, 0, 3], sum: 7 })].into(),
            ..Run::default()
        };
        let results = Results { mark: mark("single-flow"), runs: vec![run] };
        let drawn = draw(&results, &folder).unwrap();
        let names: Vec<_> = drawn.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["throughput.svg", "receiver.svg", "skb.svg"]);
        for path in drawn {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains("jumbo") && text.contains("</svg>"), "{text}");
            all_is_inside(&text);
        }
        let nothing = Results { runs: vec![], ..results };
        assert_eq!(draw(&nothing, &folder).unwrap().len(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
