"""Scores of many images: equal to asking one by one, and the model is left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vitlab.train import predict


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.norm(x).mean((2, 3)))


@pytest.mark.parametrize("batch", [1, 3, 7, 250])
@pytest.mark.parametrize("training", [True, False])
def test_it_says_of_each_image_what_the_model_says_of_it_alone(batch, training):
    torch.manual_seed(0)
    model = Toy().train(training)
    images = torch.randn(7, 3, 4, 4)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    scores = predict(model, images, batch)
    assert model.training is training and not scores.requires_grad
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    alone = torch.cat([model.eval()(x[None]) for x in images])
    assert torch.allclose(scores, alone, atol=1e-6)


def test_what_it_cannot_say_is_refused():
    with pytest.raises(ValueError, match="one image or more"):
        predict(Toy(), torch.zeros(0, 3, 4, 4))
    with pytest.raises(ValueError, match="batch 0"):
        predict(Toy(), torch.zeros(1, 3, 4, 4), 0)
    broken = Toy().train()
    nn.init.constant_(broken.head.weight, float("nan"))
    with pytest.raises(ValueError, match="not all finite"):
        predict(broken, torch.zeros(1, 3, 4, 4))
    assert broken.training
