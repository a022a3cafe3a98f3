"""The client's side of split fine-tuning: what to ask for, how to ask, what to keep.

`sampler` decides the order, `plan_of_epoch` where to cut, `loader` asks ahead of training and
hands over (features, labels), `transfer` is one request with its retries, `bandwidth` what the
link was seen to carry, `cache` what needs no asking again.
"""
