"""What a PyTorch training script imports to become elastic.

`cursor` says which sample is whose (pure); `coordination` who is in the job now, and `on_sqlite`
keeps that for one machine. Neither needs torch: a controller imports them without it.
"""
