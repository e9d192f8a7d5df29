//! Panels as SVG, with logarithmic axes.

use std::fmt::Write;

use super::figure::Figure;
use super::panels::{Line, Panel, Panels, Who};
use crate::results::Unit;

const PANEL_WIDTH: f64 = 340.0;
const PANEL_HEIGHT: f64 = 190.0;
/// Between panels, for what is written at their axes.
const GUTTER: f64 = 70.0;
const ROW_GUTTER: f64 = 62.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 58.0;
const RIGHT: f64 = 24.0;

const STYLE: &str = "text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#374151}\
    .title{font-size:16px;font-weight:600;fill:#111827}\
    .panel{font-size:13px;font-weight:600;fill:#111827}\
    .grid{stroke:#e5e7eb;stroke-width:1}.frame{stroke:#9ca3af;stroke-width:1;fill:none}\
    .line{fill:none;stroke-width:2.2;stroke-linejoin:round}";

impl Who {
    fn color(self) -> &'static str {
        match self {
            Self::Orlop => "#1d6fd1",
            Self::Peer => "#d9622b",
            Self::Floor => "#6b7280",
        }
    }

    fn dashes(self) -> &'static str {
        match self {
            Self::Orlop | Self::Peer => "none",
            Self::Floor => "5 4",
        }
    }

    fn label(self, panels: &Panels) -> &str {
        match self {
            Self::Orlop => "Orlop",
            Self::Peer => &panels.peer,
            Self::Floor => "floor: bare system calls",
        }
    }
}

pub(crate) fn svg(panels: &Panels) -> String {
    let scales = Scales::of(panels);
    let columns = float(panels.panels.len().min(panels.columns));
    let rows = float(panels.panels.len().div_ceil(panels.columns));
    let width = LEFT + columns * PANEL_WIDTH + (columns - 1.0) * GUTTER + RIGHT;
    let height = TOP + rows * PANEL_HEIGHT + (rows - 1.0) * ROW_GUTTER + BOTTOM;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"30\">{title}</text>\n",
        title = panels.title
    );
    legend(&mut text, panels);
    for (index, panel) in panels.panels.iter().enumerate() {
        let x = LEFT + float(index % panels.columns) * (PANEL_WIDTH + GUTTER);
        let y = TOP + float(index / panels.columns) * (PANEL_HEIGHT + ROW_GUTTER);
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">");
        axes(&mut text, panels, panel, &scales);
        panel.lines.iter().for_each(|line| draw(&mut text, line, panels, &scales));
        text.push_str("</g>\n");
    }
    let middle = LEFT + (width - LEFT - RIGHT) / 2.0;
    let _ = writeln!(
        text,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>",
        height - 14.0,
        panels.x_title
    );
    text
}

fn legend(text: &mut String, panels: &Panels) {
    let mut x = LEFT;
    for who in Who::ALL {
        let _ = writeln!(
            text,
            "<path d=\"M{x} 52h26\" class=\"line\" stroke=\"{}\" stroke-dasharray=\"{}\"/>\
             <text x=\"{}\" y=\"56\">{}</text>",
            who.color(),
            who.dashes(),
            x + 34.0,
            who.label(panels)
        );
        x += 110.0;
    }
}

/// All panels have the same, so that they can be compared.
struct Scales {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scales {
    fn of(panels: &Panels) -> Self {
        let points = || panels.panels.iter().flat_map(|panel| &panel.lines).flat_map(|l| &l.points);
        let (first, last) = bounds(points().map(|point| point.0.log10()));
        let (low, high) = bounds(points().map(|point| point.1.log10()));
        // A little air beside the first and the last point; whole decades up and down.
        let air = ((last - first) * 0.06).max(0.1);
        Self { x: (first - air, last + air), y: (low.floor(), high.ceil().max(low.floor() + 1.0)) }
    }

    fn x(&self, value: f64) -> f64 {
        (value.log10() - self.x.0) / (self.x.1 - self.x.0) * PANEL_WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        (self.y.1 - value.log10()) / (self.y.1 - self.y.0) * PANEL_HEIGHT
    }

    /// One in each decade.
    fn decades(&self) -> impl Iterator<Item = f64> {
        let (low, high) = self.y;
        (-9..=6)
            .map(f64::from)
            .filter(move |power| (low..=high).contains(power))
            .map(|p| 10_f64.powf(p))
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

fn axes(text: &mut String, panels: &Panels, panel: &Panel, scales: &Scales) {
    for value in scales.decades() {
        let y = scales.y(value);
        let _ = writeln!(
            text,
            "<path d=\"M0 {y:.1}h{PANEL_WIDTH}\" class=\"grid\"/>\
             <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            decade(value)
        );
    }
    for (value, name) in &panels.x_marks {
        let x = scales.x(*value);
        if (0.0..=PANEL_WIDTH).contains(&x) {
            let _ = writeln!(
                text,
                "<path d=\"M{x:.1} 0v{PANEL_HEIGHT}\" class=\"grid\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                PANEL_HEIGHT + 18.0
            );
        }
    }
    let _ = writeln!(
        text,
        "<rect width=\"{PANEL_WIDTH}\" height=\"{PANEL_HEIGHT}\" class=\"frame\"/>\
         <text class=\"panel\" x=\"0\" y=\"-9\">{}</text>",
        panel.title
    );
}

/// 1 ms, not 1.00 ms.
fn decade(seconds: f64) -> String {
    Figure(Unit::Time, seconds * 1.000_001).to_string().replace(".00", "").replace(".0", "")
}

fn draw(text: &mut String, line: &Line, panels: &Panels, scales: &Scales) {
    let places: Vec<(f64, f64)> =
        line.points.iter().map(|(x, y)| (scales.x(*x), scales.y(*y))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let color = line.who.color();
    let _ = writeln!(
        text,
        "<path d=\"M{}\" class=\"line\" stroke=\"{color}\" stroke-dasharray=\"{}\"/>",
        path.join("L"),
        line.who.dashes()
    );
    for ((x, y), (_, seconds)) in places.iter().zip(&line.points) {
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\" fill=\"{color}\" stroke=\"#fff\">\
             <title>{}: {}</title></circle>",
            line.who.label(panels),
            Figure(Unit::Time, *seconds)
        );
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
