"""models.pretrained: files, folders, hub names, training files, heads, and what is told."""

import json
import sys

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lattice import cli, models
from recordings import Recording
from torch_files import save


@pytest.fixture(scope="module")
def sonata():
    return Recording("encoder_sonata")


def same(recorded, net):
    recorded.near("final/feat", net(recorded.x))


@pytest.fixture
def file(sonata, tmp_path):
    save(tmp_path / "sonata.pth", {"config": sonata.config, "state_dict": sonata.state})
    return tmp_path / "sonata.pth"


def test_a_file_with_its_configuration(sonata, file, capfd):
    net = models.pretrained(file)
    same(sonata, net)
    told = capfd.readouterr().err
    assert "Sonata / Concerto, 234,160 parameters" in told and "CC-BY-NC 4.0" in told
    models.pretrained(file, quiet=True)
    assert capfd.readouterr().err == ""


def test_options_go_before_the_file(sonata, file):
    net = models.pretrained(file, quiet=True, enable_flash=True)
    sonata.near("flash/final/feat", net(sonata.x))
    with pytest.raises(ValueError, match="config has shade, which Sonata does not have"):
        models.pretrained(file, shade=3)


def test_a_folder(sonata, tmp_path):
    """config.json and model.safetensors, as PyTorchModelHubMixin writes them."""
    folder = tmp_path / "sonata"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(sonata.config))
    arrays = {name: mx.array(value) for name, value in sonata.state.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays)
    same(sonata, models.pretrained(folder, quiet=True))


def test_hub_names_from_the_cache(sonata, file, tmp_path, monkeypatch):
    """The layout of the hub's cache: refs/main names the commit of a snapshot."""
    folder = tmp_path / "hub" / "models--facebook--sonata"
    (folder / "snapshots" / "abc123").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc123")
    file.rename(folder / "snapshots" / "abc123" / "sonata_small.pth")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    same(sonata, models.pretrained("facebook/sonata", file="sonata_small.pth", quiet=True))


def test_without_the_hub_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    url = r"https://huggingface\.co/facebook/sonata/resolve/main/sonata\.pth"
    with pytest.raises(FileNotFoundError, match=rf"lattice-mlx\[hub\].*{url}"):
        models.pretrained("facebook/sonata", file="sonata.pth")
    with pytest.raises(FileNotFoundError, match=r"none\.pth does not exist"):
        models.pretrained(tmp_path / "none.pth")
    with pytest.raises(FileNotFoundError, match="no name of the Hugging Face hub"):
        models.pretrained("../etc/passwd")


def test_the_hub_package(sonata, file, monkeypatch, tmp_path):
    class Hub:
        @staticmethod
        def hf_hub_download(name, wanted):
            if wanted != "a.pth":
                raise OSError("offline")
            return str(file)

    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub)
    same(sonata, models.pretrained("facebook/sonata", file="a.pth", quiet=True))
    with pytest.raises(FileNotFoundError, match="the hub says: offline"):
        models.pretrained("facebook/sonata", file="b.pth")


def test_training_files(sonata, tmp_path, capfd):
    """Prefixes of Pointcept; of self-supervised training a student and a teacher."""
    state = {f"module.student.backbone.{k}": v for k, v in sonata.state.items()}
    state |= {f"module.teacher.backbone.{k}": v * 2 for k, v in sonata.state.items()}
    state["module.student.mask_head.weight"] = np.ones((3, 3), np.float32)
    save(tmp_path / "train.pth", {"epoch": 5, "state_dict": state, "optimizer": {"lr": 0.1}})
    config = {k: v for k, v in sonata.config.items() if k.startswith("enc_") or k == "order"}
    config |= {"enable_flash": False}
    same(sonata, models.pretrained(tmp_path / "train.pth", **config))
    assert "mask_head.weight" in capfd.readouterr().err
    teacher = models.pretrained(tmp_path / "train.pth", part="teacher", quiet=True, **config)
    names = dict(tree_flatten(teacher.parameters()))
    expected = sonata.state["embedding.stem.linear.bias"] * 2
    assert np.array_equal(names["stem.bias"], expected)


def test_linear_heads(sonata, file, tmp_path):
    """A probe reads all levels side by side, finest first."""
    weight = np.random.default_rng(0).standard_normal((20, 104)).astype(np.float32)
    head = {"seg_head.weight": weight, "seg_head.bias": np.ones(20, np.float32)}
    config = {"backbone_out_channels": 104, "num_classes": 20}
    save(tmp_path / "head.pth", {"config": config, "state_dict": head})
    net = models.pretrained(file, head=tmp_path / "head.pth", quiet=True)
    levels = net.encode(sonata.x)
    expected = np.array(models.upcast(levels, None)) @ weight.T + 1
    assert np.allclose(net(sonata.x).feats, expected, atol=1e-3)
    assert net.config["out_channels"] == 20


def test_prompt_training_files(tmp_path):
    """A PTv3 + PPT file: norms per data set and one head per data set."""
    small = {"stride": (2,), "enc_depths": (1, 1), "enc_channels": (16, 32), "dec_depths": (1,)}
    small |= {"dec_channels": (16,), "enc_patch_size": (64, 64), "dec_patch_size": (64,)}
    small |= {"enc_num_head": (1, 2), "dec_num_head": (1,)}
    backbone = {**small, "pdnorm_bn": True, "pdnorm_ln": True}
    made = models.PointPromptSegmenter(backbone)
    theirs = {f"module.{n}": np.array(v) for n, v in pointcept_names(made)}
    save(tmp_path / "model_best.pth", {"epoch": 1, "state_dict": theirs})
    net = models.pretrained(tmp_path / "model_best.pth", quiet=True)
    assert isinstance(net, models.PointPromptSegmenter)
    random = np.random.default_rng(0)
    coords = np.unique(random.integers(0, [1, 9, 9, 9], (60, 4)), axis=0).astype(np.int32)
    from mlx_lattice import SparseTensor

    x = SparseTensor(coords, random.standard_normal((len(coords), 6)).astype(np.float32))
    made.eval()
    for name, classes in (("Structured3D", 25), ("ScanNet", 20), ("S3DIS", 13)):
        assert net(x, name).shape == (len(coords), classes)
        assert mx.array_equal(net(x, name).feats, made(x, name).feats)


def pointcept_names(model):
    """(name of Pointcept, array) of a network of ours."""
    import re

    rules = [
        (r"stem_norm\.norms\.(\d)", r"embedding.stem.norm.norm.\1"),
        (r"backbone\.stem\.", "backbone.embedding.stem.conv."),
        (r"\.(enc|dec)\.(\d)\.", r".\1.\1\2."),
        (r"blocks\.(\d)\.", r"block\1."),
        (r"position\.conv", "cpe.0"),
        (r"position\.linear", "cpe.1"),
        (r"position\.norm\.norms", "cpe.2.norm"),
        (r"\.(norm[12])\.norms", r".\1.0.norm"),
        (r"attention", "attn"),
        (r"mlp\.first", "mlp.0.fc1"),
        (r"mlp\.second", "mlp.0.fc2"),
        (r"down\.linear", "down.proj"),
        (r"down\.norm\.norms", "down.norm.0.norm"),
        (r"up\.linear", "up.proj.0"),
        (r"up\.norm\.norms", "up.proj.1.norm"),
        (r"up\.skip_linear", "up.proj_skip.0"),
        (r"up\.skip_norm\.norms", "up.proj_skip.1.norm"),
    ]
    for name, value in tree_flatten(model.parameters()):
        for pattern, by in rules:
            name = re.sub(pattern, by, name)
        yield name, value


def test_what_does_not_fit_is_listed(sonata, tmp_path):
    path = tmp_path / "net.pth"
    lacking = {k: v for k, v in sonata.state.items() if "enc0.block0.norm1" not in k}
    save(path, {"config": sonata.config, "state_dict": lacking})
    with pytest.raises(ValueError, match=r"lacks 2: enc\.0\.blocks\.0\.norm1\.(weight|bias)"):
        models.pretrained(path)
    save(path, {"config": sonata.config, "state_dict": sonata.state | {"enc.enc9.x": np.ones(2)}})
    with pytest.raises(ValueError, match=r"unknown names: enc\.enc9\.x"):
        models.pretrained(path)
    config = {**sonata.config, "enc_channels": [16, 24, 32, 64]}
    save(path, {"config": config, "state_dict": sonata.state})
    with pytest.raises(ValueError, match=r"has other shapes of \d+: enc\.3\."):
        models.pretrained(path)
    save(path, {"state_dict": {"conv1.weight": np.ones((3, 3), np.float32)}})
    with pytest.raises(ValueError, match=r"net\.pth: .*is it a checkpoint of Point Transformer V3"):
        models.pretrained(path)


def test_convert_command(sonata, file, tmp_path, capsys):
    output = tmp_path / "out.safetensors"
    assert cli.main(["convert", str(file), str(output)]) == 0
    told = capsys.readouterr().out
    assert "Sonata / Concerto" in told and "CC-BY-NC" in told and "wrote" in told
    same(sonata, models.load(output))
    same(sonata, models.pretrained(output, quiet=True))
    flash = ["--set", "enable_flash=true"]
    assert cli.main(["convert", str(file), str(output), *flash]) == 0
    sonata.near("flash/final/feat", models.load(output)(sonata.x))
    assert cli.main(["convert", str(file), str(output), "--set", "x"]) == 1
    assert cli.main(["convert", str(file), str(tmp_path / "out.pth")]) == 1


def test_a_released_file_must_name_its_rule(tmp_path, capsys):
    recorded = Recording("ptv3_rpe")
    path = tmp_path / "model_best.pth"
    save(path, {"state_dict": {f"module.backbone.{k}": v for k, v in recorded.state.items()}})
    assert cli.main(["convert", str(path), str(tmp_path / "o.safetensors")]) == 1
    assert 'conv_input="branch"' in capsys.readouterr().err
    keys = ("enc_num_head", "dec_num_head", "enc_patch_size", "dec_patch_size", "order", "stride")
    given = {key: recorded.config[key] for key in keys}
    net = models.pretrained(path, conv_input="sum", quiet=True, **given)
    recorded.near("final/feat", net(recorded.x))
