"""Labels are checked against the classes that a model knows, batch by batch."""

import pytest
import torch

from garfield.core.errors import ConfigError
from garfield.split.training import check_labels


def test_a_label_of_no_class_is_told_with_the_number_to_give():
    with pytest.raises(ConfigError, match=r"a label 4, and the model knows 4.*--classes 5"):
        check_labels(torch.tensor([0, 4, 3]), 4)


@pytest.mark.parametrize("labels", [[0, 3], []], ids=["all there", "a rank without a sample"])
def test_labels_that_are_there_pass(labels):
    check_labels(torch.tensor(labels, dtype=torch.long), 4)
