"""How the page looks, in light and in dark; and the few lines of script that nothing depends on."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

LIGHT = {
    "page": "#f5f5f2",
    "card": "#ffffff",
    "ink": "#1a1e23",
    "quiet": "#565f6a",
    "line": "#d9dce0",
    "link": "#0b57a8",
    "good": "#14662f",
    "good-soft": "#e2f3e7",
    "warn": "#7d4b00",
    "warn-soft": "#fbefd9",
    "bad": "#a8201a",
    "bad-soft": "#fbe6e4",
    "note": "#0c566b",
    "note-soft": "#e0f0f5",
    "attention": "#b4d0f2",
    "swa": "#a9dfe6",
    "recurrent": "#dfc3ea",
    "indexer": "#c3e2ba",
    "checkpoints": "#f5dc97",
    "tokens": "#cfd6de",
    "other": "#e4e7ea",
    "before": "#a8201a",
    "after": "#0b57a8",
    "ideal": "#aab1b9",
    "h0": "#eaf1f6",
    "h1": "#d3e3ec",
    "h2": "#b3d0df",
    "h3": "#8fb9cf",
    "h4": "#6a9fbd",
    "h5": "#4884a8",
    "h6": "#2f6990",
    "h7": "#1c4e74",
    "h8": "#0c3253",
}
"""Colours by name. `h0` to `h8` are the steps of a heat strip, from the least to the most."""
DARK = {
    "page": "#131619",
    "card": "#1c2024",
    "ink": "#e8eaed",
    "quiet": "#a6afb9",
    "line": "#373d44",
    "link": "#86bcff",
    "good": "#7fd699",
    "good-soft": "#1a3123",
    "warn": "#f1bd62",
    "warn-soft": "#37290f",
    "bad": "#ff9f96",
    "bad-soft": "#42201e",
    "note": "#7fcade",
    "note-soft": "#15313a",
    "attention": "#28507c",
    "swa": "#175a63",
    "recurrent": "#5d3c6e",
    "indexer": "#2f5a31",
    "checkpoints": "#644d12",
    "tokens": "#454d57",
    "other": "#31373e",
    "before": "#ff9f96",
    "after": "#86bcff",
    "ideal": "#69727c",
    "h0": "#1d2b35",
    "h1": "#213a4a",
    "h2": "#264c62",
    "h3": "#2d607c",
    "h4": "#397696",
    "h5": "#4e8eaf",
    "h6": "#70a9c5",
    "h7": "#9cc6da",
    "h8": "#d3e8f1",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:1rem}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,footer{max-width:68rem;margin:0 auto;padding:2rem 1.25rem 0}
footer{color:var(--quiet);font-size:.85rem;padding:1.5rem 1.25rem 3rem}
h1,h2,h3,h4{line-height:1.25;margin:0;overflow-wrap:anywhere;text-wrap:balance}
.name{font-size:1.6rem;font-weight:650;letter-spacing:-.01em}
.what{color:var(--quiet);margin:.35rem 0 0;max-width:none;overflow-wrap:anywhere}
.part>h2,.part>h3{font-size:1.1rem;font-weight:650;margin-bottom:.9rem}
.part{background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:1.25rem 1.4rem 1.3rem;margin:1.1rem 0}
.part>*:last-child{margin-bottom:0}
.file{margin:0 0 3rem}
.file+.file{border-top:3px solid var(--line);padding-top:2rem}
p{margin:.4rem 0;max-width:82ch;overflow-wrap:anywhere}
a{color:var(--link);text-underline-offset:.15em}
:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:4px}
code,.hex,td.num{font-family:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,monospace;
font-size:.92em}
code{overflow-wrap:anywhere}
.quiet{color:var(--quiet)}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:.5rem;background:var(--card);padding:.4rem .8rem;z-index:2}

.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.2rem,1fr));gap:.8rem;
margin:1.2rem 0 0;padding:0;list-style:none}
.tile{background:var(--card);border:1px solid var(--line);border-top:4px solid var(--tone);
border-radius:12px;padding:.85rem 1.1rem 1rem;min-width:0;
display:grid;grid-row:span 3;grid-template-rows:subgrid;row-gap:0;align-content:start}
.tile .label{color:var(--quiet);font-size:.85rem;display:block;overflow-wrap:anywhere}
.tile .value{color:var(--tone);font-size:1.3rem;font-weight:650;line-height:1.3;display:block;
margin:.15rem 0 .2rem;overflow-wrap:anywhere}
.tile .more{font-size:.9rem;display:block;overflow-wrap:anywhere}
.good{--tone:var(--good);--soft:var(--good-soft)}
.warn{--tone:var(--warn);--soft:var(--warn-soft)}
.bad{--tone:var(--bad);--soft:var(--bad-soft)}
.note{--tone:var(--note);--soft:var(--note-soft)}
.plain{--tone:var(--ink);--soft:var(--card)}

figure{margin:0 0 1.4rem}
figure:last-child{margin-bottom:0}
figcaption{font-size:.9rem;color:var(--quiet);margin-bottom:.5rem;max-width:100ch}
figcaption b{color:var(--ink);font-weight:600}
:not(svg)>svg{display:block;width:100%;overflow:hidden}
.map :not(svg)>svg{font-size:12px;border-radius:6px}
.map text{fill:var(--ink);font-family:inherit}
.map rect,.key i{fill:var(--other);background:var(--other)}
.map .attention,.key .attention{fill:var(--attention);background:var(--attention)}
.map .dsv4,.key .dsv4{fill:var(--attention);background:var(--attention)}
.map .swa,.key .swa{fill:var(--swa);background:var(--swa)}
.map .recurrent,.key .recurrent{fill:var(--recurrent);background:var(--recurrent)}
.map .indexer,.key .indexer{fill:var(--indexer);background:var(--indexer)}
.map .checkpoints,.key .checkpoints{fill:var(--checkpoints);background:var(--checkpoints)}
.map .tokens,.key .tokens{fill:var(--tokens);background:var(--tokens)}
.map rect.gap{fill:url(#hatch)}
.map .gap~text{paint-order:stroke;stroke:var(--bad-soft);stroke-width:5}
.key i.gap{background:repeating-linear-gradient(45deg,var(--bad) 0 2px,var(--bad-soft) 2px 6px)}
.hatch-ground{fill:var(--bad-soft)}.hatch-line{stroke:var(--bad);stroke-width:2}
.map .inner rect{opacity:.6}
.map+.map{margin-top:2rem}
.map .edge{stroke:var(--card);stroke-width:1}
.map rect.band{fill:none;stroke:var(--bad);stroke-width:2;opacity:.75}
.map rect.band.note{stroke:var(--note)}.map rect.band.warn{stroke:var(--warn)}
.map rect.band.lit{fill:var(--ink);fill-opacity:.3;opacity:1;stroke-width:4}
.l1,.l2{display:none}
@media(min-width:640px){.l1{display:inline}}
@media(min-width:960px){.l2{display:inline}}
.ruler{position:relative;height:1.3em;font-size:.75rem;color:var(--quiet)}
.ruler span{position:absolute;white-space:nowrap}
.ruler span:last-child{right:0}
.marks{position:relative;margin:0 0 2px}
.marks a{position:absolute;left:var(--at);bottom:calc(.35rem + var(--lane)*1.75rem);
z-index:calc(9 - var(--lane));transform:translateX(-50%);min-width:1.35rem;height:1.35rem;
padding:0 .2rem;text-align:center;font-size:.78rem;font-weight:700;line-height:1.35rem;
text-decoration:none;border-radius:999px;background:var(--tone);color:var(--card)}
.marks a::after{content:"";position:absolute;left:50%;top:100%;border:4px solid transparent;
border-top-color:var(--tone);transform:translateX(-50%)}
.marks a::before{content:"";position:absolute;left:calc(50% - 1px);top:100%;width:2px;
height:calc(var(--lane)*1.75rem);background:var(--tone)}
.marks a:target,.marks a.lit{box-shadow:0 0 0 3px var(--card),0 0 0 6px var(--tone)}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.6rem 0 0;padding:0;list-style:none;
font-size:.85rem;color:var(--quiet)}
.key li{display:flex;align-items:center;gap:.45rem}
.key i{width:1rem;height:.75rem;border-radius:3px;flex:none}
.key svg{width:2rem;height:.75rem;flex:none}

.card{border:1px solid var(--line);border-left:5px solid var(--tone);border-radius:10px;
padding:.85rem 1.1rem;margin:.8rem 0}
.card:target,.card.lit{background:var(--soft)}
.card h3,.card h4{font-size:1rem;font-weight:600}
.card .where{font-size:.88rem;color:var(--quiet);margin:.15rem 0 .5rem;overflow-wrap:anywhere}
.badge{color:var(--tone);font-weight:700;white-space:nowrap}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.2rem 1rem;margin:.5rem 0 0;
font-size:.93rem}
dt{color:var(--quiet)}
dd{margin:0;overflow-wrap:anywhere;max-width:85ch}

.fold>summary{width:auto;overflow-wrap:anywhere;padding:.3rem 0}
.fold>.file{margin-top:1rem}
.index td:first-child{overflow-wrap:anywhere;min-width:8rem}
details{margin:.7rem 0 0;font-size:.92rem}
details.fold{margin:.4rem 0;font-size:1rem}
summary{cursor:pointer;color:var(--link);width:fit-content}
.scroll{overflow-x:auto;margin:.5rem 0 0}
table{border-collapse:collapse;font-size:.9rem;min-width:100%}
th,td{text-align:left;padding:.32rem .9rem .32rem 0;border-bottom:1px solid var(--line);
vertical-align:top}
th{color:var(--quiet);font-weight:600;white-space:nowrap}
td.num,th.num{text-align:right;white-space:nowrap}
td.num{font-size:.88rem}

.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr));gap:1.4rem}
.grid figure{margin:0;min-width:0}
.plot{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.25rem .5rem;font-size:.78rem;
color:var(--quiet)}
.plot .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;
min-width:2.2rem}
.plot .x{grid-column:2;display:flex;justify-content:space-between;gap:1rem}
.plot svg{height:11rem;overflow:visible;
border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.plot svg.tall{height:15rem}
path,line{vector-effect:non-scaling-stroke}
.dots{fill:none;stroke:var(--after);stroke-width:7;stroke-linecap:round}
.cells{fill:none;stroke:var(--after);stroke-width:3;stroke-linecap:round;stroke-linejoin:round}
.spread{fill:var(--after);stroke:var(--after);stroke-width:1.5}
.masked{fill:none;stroke:var(--bad);stroke-width:11;stroke-linecap:round}
.ideal{fill:none;stroke:var(--ideal);stroke-width:1.5;stroke-dasharray:2 5}
.before{fill:none;stroke:var(--before);stroke-width:3;stroke-linejoin:round;
stroke-dasharray:9 5}
.after,.only{fill:none;stroke:var(--after);stroke-width:3;stroke-linejoin:round}
.win{fill:var(--after);opacity:.13}

.tracks{list-style:none;margin:0;padding:0;font-size:.9rem}
.tracks li{display:grid;grid-template-columns:6.5rem minmax(0,1fr) 11rem;gap:.1rem .9rem;
align-items:center;padding:.3rem 0;border-bottom:1px solid var(--line)}
.tracks svg{height:1.1rem;background:linear-gradient(var(--line),var(--line)) center/100% 1px
no-repeat}
.reach{stroke:var(--after);stroke-width:9;fill:none}
.reach.no{stroke:var(--bad);stroke-width:7;stroke-dasharray:3 3}
.reach.state{stroke:var(--ideal)}
.returns{stroke:var(--ink);stroke-width:2.5;fill:none}
@media(max-width:640px){.tracks li{grid-template-columns:1fr auto}.tracks svg{grid-column:1/-1;
grid-row:2}}

.heat{grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}
.heat .plot svg{height:100%;border:0}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.h5{fill:var(--h5)}.h6{fill:var(--h6)}.h7{fill:var(--h7)}.h8{fill:var(--h8)}
.zero{fill:var(--card);stroke:var(--line)}
.nan{fill:var(--bad);stroke:var(--bad);stroke-width:3}
.cross{stroke:var(--card);stroke-width:1.5;fill:none}
.scale{display:flex;align-items:center;gap:.5rem;font-size:.82rem;color:var(--quiet);
flex-wrap:wrap;margin-top:.8rem}
.scale svg{width:9rem;height:.8rem;border-radius:3px;flex:none}
.scale svg.one{width:1.1rem;height:.9rem}
.compare td:first-child{font-weight:600}
@media(max-width:640px){.compare tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--line)}
.compare td,.compare th{border:0;padding-right:0}.compare :is(td,th):first-child{flex:1 0 6rem}
.compare .num{width:3.7rem;white-space:normal}.compare td:last-child{flex:0 0 100%;padding-top:0}
.compare th:last-child{display:none}}
.steps>li{margin:.5rem 0}
.steps b{font-weight:650}
@media(max-width:480px){main,footer{padding-left:.8rem;padding-right:.8rem}
.part{padding:1rem .9rem}.name{font-size:1.25rem}dl{grid-template-columns:1fr;gap:0}
dt{margin-top:.4rem}}
@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
"""

STYLE = (
    ":root{color-scheme:light dark;"
    + _variables(LIGHT)
    + "}@media(prefers-color-scheme:dark){:root{"
    + _variables(DARK)
    + "}}"
    + _RULES.replace("\n", "")
)

SCRIPT = """
for (const card of document.querySelectorAll("[data-mark]")) {
  const places = document.querySelectorAll(`[data-of="${card.dataset.mark}"]`);
  const light = (on) => places.forEach((one) => one.classList.toggle("lit", on));
  const here = (on) => card.classList.toggle("lit", on);
  card.addEventListener("pointerenter", () => light(true));
  card.addEventListener("pointerleave", () => light(false));
  card.addEventListener("focusin", () => light(true));
  card.addEventListener("focusout", () => light(false));
  for (const place of places) {
    place.addEventListener("pointerenter", () => here(true));
    place.addEventListener("pointerleave", () => here(false));
  }
}
"""
"""A finding and its bytes light up together; everything is there without it."""


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(SCRIPT)}'; "
    "base-uri 'none'; form-action 'none'"
)
"""Of the content: nothing is fetched, and no other script runs, whatever a file says."""
