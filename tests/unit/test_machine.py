"""What a figure says of the machine that it was measured on."""

import pytest

from garfield.report import machine

_CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu sse4_2 avx fma {more}

processor\t: 1
model name\t: AMD EPYC
flags\t\t: fpu sse4_2 avx fma {more}
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("avx2 avx512f avx512vl", "AMD EPYC (AVX-512)"),
        ("avx2", "AMD EPYC (AVX2)"),
        ("", "AMD EPYC"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_their_vectors(more, told, tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(_CPUINFO.format(more=more))
    monkeypatch.setattr(machine, "_CPUINFO", cpuinfo)
    assert machine.processor() == told


def test_a_machine_that_tells_nothing_of_its_cores_still_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    assert machine.processor()
