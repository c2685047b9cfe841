"""`streamgauge bench compare` and `check`: two servers under the same load, and whether the second holds.

In the data's order: `pairs` visits the servers in turn, `recorded` takes the first one's part from an earlier result,
`measures` says what is compared, `bootstrap` how sure it is, `verdicts` what follows, `report` shows it. `check` is
the whole way.
"""
