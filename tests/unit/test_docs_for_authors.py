"""The pages for people who bring their own rows, rules and attacks say what is so."""

from tests import snippets


def test_any_shape_runs_and_prints_what_it_says(capsys):
    names = snippets.run_python("any-shape.md")
    assert capsys.readouterr().out == snippets.blocks("any-shape.md", "text")[0]
    assert list(names["together"]) == list(names["model"].state_dict())
