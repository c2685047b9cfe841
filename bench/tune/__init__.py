"""`streamgauge tune`: settings with which a server meets its objectives more often, or evidence that none does.

In the data's order: `space` says what may change; `propose` which settings to try next; `search` spends the budget on
them; `trial` puts them to a server; `decide` what follows from the figures alone; `write` makes a file of settings and
`report` and `plots` one for people; `command` is the whole way, `cli` its options.
"""
