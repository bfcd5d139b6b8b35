//! Charts: rectangles in SVG, drawn here, with the same figures as a table. Their colours are the style sheet's.
//!
//! Never knows what it draws.

use maud::{Markup, html};

use super::text::count;

/// One column: what it stands for, and its parts from the ground up.
pub(super) struct Column<const N: usize> {
    pub label: String,
    pub parts: [u64; N],
}

const STEP: u64 = 10;
const WIDTH: u64 = 8;
const HEIGHT: u64 = 100;

/// Stacked columns with a legend and a table. `classes` are the parts' colours, `names` their words.
pub(super) fn stacked<const N: usize>(
    title: &str,
    columns: &[Column<N>],
    classes: [&str; N],
    names: [&str; N],
) -> Markup {
    let max = columns.iter().map(|column| column.parts.iter().sum::<u64>()).max().unwrap_or(0).max(1);
    let width = columns.len() as u64 * STEP;
    let total = |part: usize| columns.iter().map(|column| column.parts[part]).sum::<u64>();
    html! {
        figure.chart {
            figcaption {
                span.chart-title { (title) }
                ul.legend {
                    @for part in 0..N {
                        li { span.swatch.(classes[part]) {} (names[part]) " " b { (count(total(part))) } }
                    }
                }
            }
            div.plot {
                span.top aria-hidden="true" { (count(max)) }
                svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label={ (title) "; the table below has the figures" } {
                    @for (at, column) in columns.iter().enumerate() {
                        g { title { (column.label) ": " (told(column, &names)) }
                            rect.ghost x=(at as u64 * STEP) y="0" width=(STEP) height=(HEIGHT) {}
                            @for (part, (from, to)) in stack(&column.parts, max).into_iter().enumerate() {
                                @if to > from {
                                    rect.(classes[part]) x=(at as u64 * STEP + 1) y={ (tenths(1_000 - to)) } width=(WIDTH) height={ (tenths(to - from)) } {}
                                }
                            }
                        }
                    }
                }
            }
            div.axis aria-hidden="true" {
                @for (at, column) in columns.iter().enumerate() {
                    @if at % 6 == 0 || at + 1 == columns.len() { span { (column.label) } }
                }
            }
            details.figures { summary { "Figures" }
                div.scroll tabindex="0" role="group" aria-label={ "Figures: " (title) } { table {
                    caption.unseen { (title) }
                    thead { tr { th scope="col" { "From" } @for name in names { th.number scope="col" { (name) } } } }
                    tbody { @for column in columns.iter().rev() { tr {
                        th scope="row" { (column.label) }
                        @for part in column.parts { td.number { (count(part)) } }
                    } } }
                } }
            }
        }
    }
}

/// A line of small columns, good below and bad above, with its words for who does not see it.
pub(super) fn spark(hours: &[(u64, u64)], words: &str) -> Markup {
    let max = hours.iter().map(|(good, bad)| good + bad).max().unwrap_or(0).max(1);
    html! {
        svg.spark viewBox={ "0 0 " (hours.len() as u64 * STEP) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(words) {
            title { (words) }
            @for (at, (good, bad)) in hours.iter().enumerate() {
                @for ((from, to), tone) in stack(&[*good, *bad], max).into_iter().zip(["good", "bad"]) {
                    @if to > from { rect.(tone) x=(at as u64 * STEP + 1) y=(tenths(1_000 - to)) width=(WIDTH) height=(tenths(to - from)) {} }
                }
            }
        }
    }
}

fn told<const N: usize>(column: &Column<N>, names: &[&str; N]) -> String {
    let parts = names.iter().zip(column.parts).filter(|(_, n)| *n > 0);
    let parts: Vec<_> = parts.map(|(name, n)| format!("{n} {name}")).collect();
    if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
}

/// Where each part begins and ends, in thousandths of the height. What is there at all is seen.
fn stack<const N: usize>(parts: &[u64; N], max: u64) -> [(u64, u64); N] {
    let mut from = 0;
    parts.map(|part| {
        let height = u64::try_from(u128::from(part) * 1_000 / u128::from(max)).unwrap_or(1_000);
        let to = (from + if part > 0 { height.max(12) } else { 0 }).min(1_000);
        let here = (from, to);
        from = to;
        here
    })
}

fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_on_each_other_and_the_smallest_is_seen() {
        assert_eq!(stack(&[500, 250, 0, 250], 1_000), [(0, 500), (500, 750), (750, 750), (750, 1_000)]);
        assert_eq!(
            stack(&[999_999, 1, 0, 0], 1_000_000),
            [(0, 999), (999, 1_000), (1_000, 1_000), (1_000, 1_000)]
        );
        assert_eq!(stack(&[1], 1_000_000), [(0, 12)]);
    }
}
