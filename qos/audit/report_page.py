"""The frame of the report: its sections, and their look.

On a screen it follows the reader's choice of light or dark; paper is light. Down to a
width of 320 pixels, only a wide table scrolls sideways, and only by itself.
"""

from __future__ import annotations

from string import Template

__all__ = ["LATENCY", "OUTCOMES", "PAGE", "WAITS", "section"]

#: Descriptions of the charts: templates, `$step` is the length of time of a point.
OUTCOMES = (
    "Messages per $step, by the time they began at. Each chart has its own scale."
)
LATENCY = """\
Seconds from accepted to known to be delivered, by the clock of the sender: the slowest
routes, and all others together. Half of the messages took no longer than the line (p50),
95 % no longer than the upper edge of the band (p95), per $step. A dot has no neighbour.
Each chart has its own scale."""
WAITS = """\
Seconds that items waited until somebody took them: half no longer than the line (p50), 95 %
no longer than the upper edge of the band (p95), per $step."""


def section(name: str, title: str, *parts: str, description: str = "") -> str:
    """A part of the page with a heading; "" if all its parts are empty.

    Args:
        name: its address within the page.
        title: the heading.
        parts: HTML.
        description: describes the content, in plain text.
    """
    body = "".join(parts)
    if not body:
        return ""
    says = f'<p class="what">{description}</p>' if description else ""
    return f'<section id="{name}"><h2>{title}</h2>{says}{body}</section>\n'


PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="xmpp-qos audit">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light; --ink: #222; --soft: #5b6270; --rule: #dfe3e8; --page: #f4f5f7;
  --card: #fff; --series: #1f5f99; --band: #1f5f9940; --plain: #8d99ae;
  --delivered: #2e7d5b; --withdrawn: #8d99ae; --open: #4a7fb5; --not-delivered: #c77d0a;
  --in-doubt: #b23a48; --good: #1d5b40; --good-card: #e2f2ea; --bad: #842533;
  --bad-card: #f9e4e6; --partly: #6d4a00; --partly-card: #fcf0d4; }
@media screen and (prefers-color-scheme: dark) {
:root { color-scheme: dark; --ink: #e4e7ec; --soft: #a3acba; --rule: #363c46; --page: #14171b;
  --card: #1d2126; --series: #7fb4ea; --band: #7fb4ea50; --plain: #6d7789;
  --delivered: #58b98b; --withdrawn: #8d99ae; --open: #6ba3dd; --not-delivered: #e0a044;
  --in-doubt: #e36a78; --good: #a8e0c4; --good-card: #173527; --bad: #ffb9c1;
  --bad-card: #47191f; --partly: #f3d48f; --partly-card: #3d3010; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  margin: 0; overflow-wrap: anywhere; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 0 0 8px; }
h3 { font-size: 15px; margin: 16px 0 0; }
h3 em { font-style: normal; color: var(--bad); background: var(--bad-card);
  border-radius: 9px; padding: 1px 8px; font-size: 13px; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 20px; margin-top: 20px; }
.lead, .what, .none, footer { color: var(--soft); margin: 0 0 8px; }
.verdict { font-size: 17px; font-weight: 600; border-radius: 8px; padding: 12px 16px;
  margin: 16px 0; border: 1px solid; }
.good { color: var(--good); background: var(--good-card); }
.bad { color: var(--bad); background: var(--bad-card); }
.partly, .nothing { color: var(--partly); background: var(--partly-card); }
.proof { margin: 0 0 16px; padding-left: 20px; }
.proof ul { padding-left: 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr));
  gap: 12px; margin-top: 12px; }
.tile { background: var(--card); border: 1px solid; border-width: 1px 1px 1px 5px;
  border-radius: 6px; padding: 10px 12px; display: flex; flex-direction: column; }
.tile b { font-size: 22px; line-height: 1.3; }
.tile span::first-letter { text-transform: uppercase; }
.tile small { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(290px, 100%), 1fr));
  gap: 20px; align-items: start; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figcaption { font-size: 13px; color: var(--soft); }
figcaption b { display: block; color: var(--ink); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
figure details { border: 0; font-size: 13px; }
figure .scroll { max-height: 260px; overflow-y: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
caption { text-align: left; color: var(--soft); padding-bottom: 4px;
  max-width: calc(100vw - 48px); }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; min-width: 150px; }
tr > :last-child { padding-right: 2px; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; overflow-wrap: normal; }
tbody th { font-weight: 400; }
.word { white-space: nowrap; min-width: 0; }
.number, td { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap;
  min-width: 0; }
td.word, td.text { text-align: left; }
td.text { white-space: normal; min-width: 150px; }
thead .number { white-space: normal; }
details { border-top: 1px solid var(--rule); padding: 6px 0; }
summary { cursor: pointer; }
code { font-size: 13px; background: var(--page); padding: 1px 5px; border-radius: 4px; }
.evidence { display: flex; flex-wrap: wrap; gap: 8px 32px; padding: 8px 0 8px 16px;
  font-size: 13px; }
dl { display: grid; grid-template-columns: fit-content(45%) 1fr; gap: 2px 12px; margin: 0;
  align-content: start; flex: 1 1 280px; min-width: 0; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
footer { margin-top: 24px; font-size: 13px; }
@media (max-width: 600px) {
main { padding: 16px 10px 40px; }
section { padding: 14px 12px; }
.evidence { padding-left: 0; }
}
@media print {
body { background: none; }
main { max-width: none; padding: 0; }
section { border: 0; padding: 0; }
.scroll { overflow: visible; max-height: none; }
tr, .tile, dl { break-inside: avoid; }
}
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p class="lead">$lead All times are UTC.</p>
$verdict
$proof
$tiles
$sections
<footer>Made by xmpp-qos audit. All rows are in the tables beside this file.</footer>
</main>
</body>
</html>
""")
