"""Networks and dropout, unit by unit."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sikagp import GaussianMixture
from sikagp.experiments.methods.networks import DropoutNetwork, Network, certain


def by_hand(network: Network, *activations: nn.Module) -> nn.Sequential:
    """Layers of a network with activations between."""
    parts: list[nn.Module] = [network.layers[0]]
    for activation, layer in zip(activations, network.layers[1:], strict=True):
        parts += [activation, layer]
    return nn.Sequential(*parts)


@pytest.mark.parametrize(("name", "activation"), [("relu", nn.ReLU()), ("tanh", nn.Tanh())])
@torch.no_grad()
def test_a_network_is_its_layers_with_activations_between(name, activation):
    network = Network((3, 5, 4, 2), activation=name)
    x = torch.randn(7, 3)
    found = network(x)
    assert_close(found.mean, by_hand(network, activation, activation)(x))
    assert found.variance.abs().max() == 0
    assert network.kl_divergence() == 0


@torch.no_grad()
def test_without_hidden_layers_it_is_linear():
    network = Network((3, 2))
    x = torch.randn(4, 3)
    assert_close(network(x).mean, x @ network.layers[0].weight.T + network.layers[0].bias)


@torch.no_grad()
def test_every_hidden_layer_has_masks_of_its_own():
    network = DropoutNetwork((3, 6, 5, 2), rate=0.4, num_samples=9).eval()
    x = torch.randn(4, 3)
    first, second, last = network.layers
    for sample in range(9):
        masks = [network.get_buffer(f"mask{i}")[sample] for i in range(2)]
        hidden = first(x).relu() * masks[0]
        hidden = second(hidden).relu() * masks[1]
        assert_close(network(x).components.mean[sample], last(hidden))


@torch.no_grad()
def test_without_hidden_layers_input_features_are_dropped():
    network = DropoutNetwork((6, 2), rate=0.4, num_samples=9).eval()
    x = torch.randn(4, 6)
    masks = network.mask0
    assert masks.shape == (9, 1, 6)
    assert_close(network(x).components.mean, network.layers[0](x * masks))


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_masks_drop_the_share_they_should_and_keep_the_mean(rate):
    mask = DropoutNetwork((2, 500, 1), rate=rate, num_samples=200).mask0
    assert (mask == 0).float().mean().item() == pytest.approx(rate, abs=0.01)
    assert_close(mask.unique(), torch.tensor([0.0, 1 / (1 - rate)]))


@pytest.mark.parametrize("rate", [0.1, 0.6])
@torch.no_grad()
def test_training_drops_the_same_share(rate):
    network = DropoutNetwork((1000, 1), rate=rate)
    nn.init.ones_(network.layers[0].weight)
    nn.init.zeros_(network.layers[0].bias)
    output = network(torch.ones(50, 1000))
    assert not isinstance(output, GaussianMixture)
    assert output.mean.mean().item() == pytest.approx(1000, rel=0.03)
    # A sum of 1000 units, each 1 / (1 - rate) or 0.
    deviation = (1000 * rate / (1 - rate)) ** 0.5
    assert output.mean.std().item() == pytest.approx(deviation, rel=0.3)


def test_masks_are_no_part_of_a_checkpoint_and_repeat():
    first, second = (DropoutNetwork((2, 8, 1), rate=0.5) for _ in range(2))
    assert torch.equal(first.mask0, second.mask0)
    assert not any("mask" in name for name in first.state_dict())
    assert first.mask0.shape == (50, 1, 8)
    assert (DropoutNetwork((2, 8, 1)).rate, first.rate) == (0.1, 0.5)


def test_bad_rates_and_activations_are_refused():
    with pytest.raises(ValueError, match="rate"):
        DropoutNetwork((2, 1), rate=1.5)
    with pytest.raises(ValueError, match="activation must be one of"):
        Network((2, 1), activation="gelu")


def test_certainty_is_a_variance_of_zero():
    mean = torch.randn(3, 2)
    assert_close(certain(mean).mean, mean)
    assert_close(certain(mean).variance, torch.zeros(3, 2))
