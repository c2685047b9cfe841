"""`streamgauge bench capacity`: the highest rate of arrivals that a server takes within its objectives, and what gives.

In the data's order: `bracket` says which rate to try next, `saturation` when a run is lost and may end, `capacity` runs
the points, `confidence` makes one figure with an interval of them, `diagnosis` says what breaks first, `knee` where the
curve bends, `report` and `plots` show it, `command` is the whole way.
"""
