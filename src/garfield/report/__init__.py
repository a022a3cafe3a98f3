"""What a run or a rule shows of itself: measurements, tables and pictures.

`resilience` and `speed` compute numbers, `machine` collects facts; `tables` and
`heatmap` show them. `example_gradients` makes real gradients to show them on.
"""
