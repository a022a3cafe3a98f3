"""Federated GANs between processes: devices that dial in, and servers of whom one leads.

    turn            which attempt at which round by which primary: what all keys are numbered by
    messages        what is said: announcements, tasks, reports; documents, checked when read
    state_vector    a learning state as one float32 vector, and back to the same bits
    device_node     a device's loop: hear of a turn, train if chosen, offer what was learned
    server_node     the primary's loop: choose, announce, collect in time, join, commit

Devices open the links, so they work behind NAT; servers pull over them. Nothing but metadata,
reports and learning states is ever offered by a device.
"""
