"""How report.html looks, by day and by night."""

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#0f172a;--quiet:#5b6779;--line:#cbd5e1;--faint:#e8edf3;--box:#f5f7fa;
--link:#1d4ed8;--paper:#fff;--good:#15803d;--good-bg:#ecfdf5;--check:#b45309;--check-bg:#fffbeb;--distrust:#b91c1c;
--distrust-bg:#fef2f2;--bar:#3b6fe0}
@media(prefers-color-scheme:dark){:root{--page:#10151d;--ink:#e6ebf2;--quiet:#9aa7b8;--line:#3a4656;--faint:#232c38;
--box:#18202b;--link:#8ab4ff;--paper:#ccd4de;--good:#4ade80;--good-bg:#0f2a1d;--check:#fbbf24;--check-bg:#2e2410;
--distrust:#f87171;--distrust-bg:#331619;--bar:#6d9bff}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;margin:0 auto;max-width:66rem;padding:1.2rem 1rem 3rem;
color:var(--ink);background:var(--page);overflow-wrap:anywhere}
h1{font-size:1.35rem;line-height:1.35;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .5rem}p{margin:.4rem 0}
ul{margin:.3rem 0;padding-left:1.2rem}a,summary{color:var(--link)}summary{cursor:pointer;margin:.4rem 0}
code{font:.87em ui-monospace,monospace;background:var(--box);padding:.05em .3em;border-radius:.2rem}
.verdict,.finding{border-left:.4rem solid;border-radius:.5rem}.verdict{padding:1rem 1.2rem}
.finding{padding:.5rem .9rem;margin:.5rem 0}.finding details{font-size:.92rem}
.good{background:var(--good-bg);border-color:var(--good)}.check{background:var(--check-bg);border-color:var(--check)}
.distrust{background:var(--distrust-bg);border-color:var(--distrust)}
.mark{font-weight:600;white-space:nowrap;background:none}.mark.good{color:var(--good)}.mark.check{color:var(--check)}
.mark.distrust{color:var(--distrust)}
.numbers{display:flex;flex-wrap:wrap;gap:.7rem 1.9rem;margin:1.1rem 0 0}.numbers div{min-width:5.5rem;max-width:12rem}
.numbers b{display:block;font-size:1.2rem;line-height:1.3;white-space:nowrap}
.numbers span,figcaption,.quiet{color:var(--quiet);font-size:.87rem}
.next{background:var(--box);border-radius:.5rem;padding:.6rem .9rem;margin:1.1rem 0 0}
.against{display:block;min-width:12rem;color:var(--check)}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
td,th{padding:.25rem .9rem .25rem 0;text-align:left;vertical-align:middle;overflow-wrap:normal}
th{font-weight:600;border-bottom:1px solid var(--line)}td{border-bottom:1px solid var(--faint)}
td img{display:block;border-radius:.25rem;max-width:none}
.meter{background:var(--faint);border-radius:.25rem;min-width:6rem}
.meter div{background:var(--bar);height:.6rem;border-radius:.25rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
.wide{grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}figure{margin:0;min-width:0}
svg{display:block;width:100%;height:auto;border:1px solid var(--faint);border-radius:.4rem}
svg text{fill:var(--quiet);font-family:inherit}svg .grid{stroke:var(--faint)}svg .axis{stroke:var(--line)}
svg .ink{stroke:var(--ink)}svg .empty{fill:var(--faint)}svg .bar{fill:var(--bar)}
svg.paper{background:var(--paper)}svg.paper text{fill:#334155}
pre{font-size:.8rem;overflow-x:auto;background:var(--box);padding:.8rem;border-radius:.4rem}
"""
