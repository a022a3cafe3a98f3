"""Fine-tuning next to the data: the first layers run beside the object store (HAPI).

    loader = SplitLoader(SplitSettings(data="s3://bucket/prefix", model="resnet18", batch=1000))
    for features, labels in loader:
        loss = criterion(loader.tail(features), labels)

Where the network between store and client is the bottleneck, sending features instead of
images is faster. The thesis (chapter 5) calls this HAPI. `planner` and `scheduler` are pure;
`client` asks, `server` answers beside the store, `stores` and `objects` hold the data,
`models` are cut, and `wire` is what client and server say to each other.
"""
