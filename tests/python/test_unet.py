"""The U-Net example trains, and joins its skips without aligning coordinates."""

import importlib.util
import pathlib
import time

import mlx.core as mx

import mlx_lattice as ml

PATH = pathlib.Path(__file__).parents[2] / "examples" / "unet.py"


def example():
    spec = importlib.util.spec_from_file_location("unet_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_overfits_to_one_percent():
    begin = time.process_time()
    losses = example().train(report=lambda text: None)
    assert losses[-1] < 0.01 * losses[0], losses
    assert time.process_time() - begin < 30


def test_skips_share_identity_and_weights_round_trip(tmp_path):
    unet = example()
    x, _ = unet.scene(n=60)
    model = unet.UNet(1, 2, (4, 8, 8))
    model.eval()
    before = ml._ext.alignment_count()
    y = model(x)
    mx.eval(y.feats)
    assert ml._ext.alignment_count() == before and y.same_coords(x) and y.channels == 2
    model.save_weights(str(tmp_path / "w.safetensors"))
    other = unet.UNet(1, 2, (4, 8, 8))
    other.load_weights(str(tmp_path / "w.safetensors"))
    other.eval()
    assert mx.array_equal(other(x).feats, y.feats)
