//! Draws the plots of `docs/performance.md` from the figures of the benchmark `fleet`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::prelude::{
    BLACK, ChartBuilder, IntoDrawingArea as _, IntoFont as _, LineSeries, PathElement, RGBColor, SVGBackend, WHITE,
};
use plotters::style::Color as _;
use serde_json::Value;

const FIGURES: &str = "target/bench/fleet.json";
const DIRECTORY: &str = "docs/performance";
const SIZE: (u32, u32) = (720, 360);
const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

struct Plot {
    file: &'static str,
    title: &'static str,
    /// Where the series of one size are, and what each is called.
    series: &'static [(&'static str, &'static str)],
    part: &'static str,
}

const PLOTS: [Plot; 2] = [
    Plot {
        file: "creation.svg",
        title: "Objects in phase Active after the first creation",
        part: "creation",
        series: &[("/controller/0/active", "objects")],
    },
    Plot {
        file: "boundary.svg",
        title: "Objects in the expected phase after the boundary",
        part: "boundary",
        series: &[("/controller/open/series", "windows open"), ("/controller/close/series", "windows close")],
    },
];

/// One line: seconds for each 1,000 objects, and the share of all objects.
struct Line {
    label: String,
    points: Vec<(f64, f64)>,
}

pub(super) fn draw() -> Result<()> {
    let text =
        fs::read(FIGURES).with_context(|| format!("cannot read {FIGURES}: run `cargo xtask bench fleet` first"))?;
    let figures: Value = serde_json::from_slice(&text).with_context(|| format!("cannot parse {FIGURES}"))?;
    fs::create_dir_all(DIRECTORY)?;
    for plot in &PLOTS {
        let lines = lines(&figures[plot.part], plot.series)?;
        if lines.is_empty() {
            println!("{FIGURES} has no figures of {}; its plot is kept", plot.part);
            continue;
        }
        let path = Path::new(DIRECTORY).join(plot.file);
        draw_lines(&path, plot.title, &lines).with_context(|| format!("cannot draw {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn lines(sizes: &Value, series: &[(&str, &str)]) -> Result<Vec<Line>> {
    let mut sizes: Vec<(u32, &Value)> = sizes
        .as_object()
        .into_iter()
        .flatten()
        .map(|(size, figures)| Ok((size.parse()?, figures)))
        .collect::<Result<_>>()?;
    sizes.sort_unstable_by_key(|(size, _)| *size);
    let mut lines = Vec::new();
    for (size, figures) in sizes {
        for (pointer, label) in series {
            let points = figures.pointer(pointer).and_then(Value::as_array);
            let points = points.ok_or_else(|| anyhow!("the figures of {size} objects have no {pointer}"))?;
            let label = if series.len() == 1 { format!("{size} {label}") } else { format!("{size}, {label}") };
            lines.push(Line { label, points: points.iter().filter_map(|it| point(it, size)).collect() });
        }
    }
    Ok(lines)
}

fn point(point: &Value, objects: u32) -> Option<(f64, f64)> {
    let [seconds, count] = [point.get(0)?.as_f64()?, point.get(1)?.as_f64()?];
    let objects = f64::from(objects);
    Some((seconds * 1000.0 / objects, (count * 100.0 / objects).min(100.0)))
}

fn draw_lines(path: &Path, title: &str, lines: &[Line]) -> Result<()> {
    let last = lines.iter().filter_map(|line| Some(line.points.last()?.0)).fold(1.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..last * 1.05, 0.0..105.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds for each 1,000 objects")
        .y_desc("% of all objects")
        .light_line_style(WHITE)
        .draw()?;
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(plotters::chart::SeriesLabelPosition::LowerRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plot_has_a_line_for_each_size_and_series() {
        let points = |objects: u32| json!([[1.0, 0], [2.0, objects / 2], [4.0, objects]]);
        let sizes = json!({
            "10000": { "controller": { "open": { "series": points(10_000) }, "close": { "series": points(10_000) } } },
            "1000": { "controller": { "open": { "series": points(1000) }, "close": { "series": points(1000) } } },
        });
        let lines = lines(&sizes, PLOTS[1].series).unwrap();
        let labels: Vec<&str> = lines.iter().map(|line| line.label.as_str()).collect();
        assert_eq!(
            labels,
            ["1000, windows open", "1000, windows close", "10000, windows open", "10000, windows close"]
        );
        assert_eq!(lines[0].points, [(1.0, 0.0), (2.0, 50.0), (4.0, 100.0)]);
        assert_eq!(lines[2].points, [(0.1, 0.0), (0.2, 50.0), (0.4, 100.0)]);

        let file = tempfile::NamedTempFile::new().unwrap();
        draw_lines(file.path(), "a title", &lines).unwrap();
        let svg = fs::read_to_string(file.path()).unwrap();
        for RGBColor(red, green, blue) in COLORS {
            let stroke = format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\"");
            assert_eq!(svg.matches(&stroke).count(), 2, "a line and its legend in {stroke}: {svg}");
        }
        assert!(svg.contains("a title") && svg.contains("10000, windows close"), "{svg}");
    }

    #[test]
    fn missing_series_is_an_error() {
        let error = lines(&json!({ "1000": { "controller": {} } }), PLOTS[1].series).err().unwrap();
        assert_eq!(error.to_string(), "the figures of 1000 objects have no /controller/open/series");
    }
}
