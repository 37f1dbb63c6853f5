"""The U-Net example trains, and joins its skips without aligning coordinates."""

import time

import mlx.core as mx
import mlx_lattice as ml

import examples


def test_overfits_to_one_percent():
    begin = time.process_time()
    losses = examples.load("unet").train(report=lambda text: None)
    assert losses[-1] < 0.01 * losses[0], losses
    assert time.process_time() - begin < 30


def test_skips_share_identity_and_weights_round_trip(tmp_path):
    unet = examples.load("unet")
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
