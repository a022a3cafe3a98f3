"""The wheel as users get it: built, installed where there is no torch, and used."""

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from garfield import __version__
from tools import build_wheel

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel.build(tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("build"))


def test_the_wheel_works_with_nothing_but_what_it_asks_for(wheel, tmp_path):
    assert re.fullmatch(rf"garfield_ml-{__version__}-cp310-abi3-\w+\.whl", wheel.name)
    assert f"garfield {__version__} works" in build_wheel.try_out(wheel, tmp_path)


def test_the_page_on_pypi_asks_for_no_file_that_is_not_there(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        about = Parser().parsestr(archive.read(name).decode())
    assert about["Name"] == "garfield-ml"
    assert about["Version"] == __version__
    assert about["Description-Content-Type"] == "text/markdown"
    page = about.get_payload()
    assert "## Rules" in page
    assert re.findall(r"\]\((?!http|#)[^)]+\)", page) == []


def test_every_module_and_file_of_data_is_in_the_wheel(wheel):
    source = Path(build_wheel.ROOT / "src")
    kept = {".py", ".npz", ".json", ".safetensors", ".typed", ".LICENSE"}
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "garfield").rglob("*")
        if path.suffix in kept or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        assert expected - set(archive.namelist()) == set()
