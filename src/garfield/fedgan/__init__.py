"""Federated GANs (FeGAN, thesis chapter 6): every device trains both networks on data it keeps.

A *round*: the server picks devices so that the classes seen so far stay in proportion
(`sampling`), gives each of them a load (`load`), and sends them generator and discriminator;
each trains both on its own data (`device`) and sends them back; the server joins them by
weights that go down with the divergence of a device's classes from everybody's (`weighting`,
`averaging`), or by a rule of `garfield.gars` on what each device changed.

What a user brings is a `Gan` (`gan.py`); `networks/` holds two that are ready.
"""
