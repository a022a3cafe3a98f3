"""docs/own-model-and-data.md: its snippets run as they stand, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/own-model-and-data.md").read_text()


@pytest.mark.slow
def test_the_snippets_of_the_page_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(snippet, "own-model-and-data.md", "exec"), names)
    assert (tmp_path / "accuracy.png").is_file()
    assert (tmp_path / "prices" / "summary.json").is_file()


def test_every_flag_of_the_page_is_one():
    from garfield.apps.settings import all_settings

    flags = {setting.flag for setting in all_settings()} | {"--resume", "--debug"}
    for line in re.findall(r"^garfield train (.*)$", PAGE, re.M):
        assert {word for word in line.split() if word.startswith("--")} <= flags
