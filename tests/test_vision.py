"""Data sets, transforms, grids and networks under torchvision's names."""
from __future__ import annotations

import gzip
import importlib
import io
import random
import struct
import subprocess
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.vision import datasets, models, ops, transforms, utils
from adjoint.vision.transforms import functional as F

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (13, 17, 3), dtype=np.uint8)


def peer(name: str) -> Any:
    """A module of torchvision, where it and Pillow are installed; its compiled part is not used."""
    pytest.importorskip("PIL")
    pytest.importorskip("torch")
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("none"))
    return pytest.importorskip(f"torchvision.{name}")


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) \
        + array.tobytes()


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, n in (("train", 20), ("t10k", 8)):
        images = RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        (raw / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.arange(n, dtype=np.uint8) % 10))
    return tmp_path


def test_mnist_through_a_loader(digits: Path) -> None:
    chain = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    data = datasets.MNIST(digits, train=True, download=True, transform=chain)
    assert len(data) == 20 and data.targets[:3].tolist() == [0, 1, 2]
    batch, labels = next(iter(ad.utils.data.DataLoader(data, batch_size=5)))
    assert tuple(batch.shape) == (5, 1, 28, 28) and labels.dtype is ad.int64
    wanted = (data.data[0].numpy().astype(np.float32) / np.float32(255) - np.float32(0.1307)) \
        / np.float32(0.3081)
    np.testing.assert_allclose(batch[0, 0].numpy(), wanted, rtol=1e-5)
    assert "Number of datapoints: 20" in repr(data)
    assert len(datasets.MNIST(digits, train=False)) == 8


def test_missing_data_says_that_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing is downloaded"):
        datasets.MNIST(tmp_path, download=True)
    with pytest.raises(RuntimeError, match="Dataset not found"):
        datasets.CIFAR10(tmp_path)


def test_cifar_binary(tmp_path: Path) -> None:
    rows = RNG.integers(0, 256, (4, 3073), dtype=np.uint8)
    rows[:, 0] = [3, 1, 4, 1]
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    data = datasets.CIFAR10(tmp_path, train=False, transform=transforms.ToTensor())
    image, label = data[2]
    assert label == 4 and tuple(image.shape) == (3, 32, 32)
    np.testing.assert_array_equal((image * 255).round().numpy(),
                                  rows[2, 1:].reshape(3, 32, 32).astype(np.float32))


def test_fake_data_is_the_same_again() -> None:
    data = datasets.FakeData(3, (3, 8, 9), 4, transform=transforms.ToTensor())
    first, again = data[1], data[1]
    assert first[1] == again[1] and bool((first[0] == again[0]).all())
    assert tuple(first[0].shape) == (3, 8, 9)
    with pytest.raises(IndexError):
        data[3]


KINDS = {"array": lambda a: a, "tensor": lambda a: ad.tensor(np.moveaxis(a, -1, 0).copy())}


def back(image: Any) -> np.ndarray:
    return image.numpy() if isinstance(image, ad.Tensor) else np.moveaxis(np.asarray(image), -1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_geometry(kind: str) -> None:
    image, planes = KINDS[kind](IMAGE), np.moveaxis(IMAGE, -1, 0)
    np.testing.assert_array_equal(back(F.hflip(image)), planes[:, :, ::-1])
    np.testing.assert_array_equal(back(F.vflip(image)), planes[:, ::-1])
    np.testing.assert_array_equal(back(F.crop(image, 2, 3, 5, 6)), planes[:, 2:7, 3:9])
    padded = back(F.pad(image, (1, 2, 3, 4), fill=7))
    assert padded.shape == (3, 13 + 6, 17 + 4) and (padded[:, :2] == 7).all()
    np.testing.assert_array_equal(padded[:, 2:15, 1:18], planes)
    outside = back(F.crop(image, -2, 14, 5, 6))
    assert outside.shape == (3, 5, 6) and not outside[:, :2].any() and not outside[:, :, 3:].any()
    np.testing.assert_array_equal(outside[:, 2:, :3], planes[:, :3, 14:])
    assert back(F.center_crop(image, 30)).shape == (3, 30, 30)
    assert back(F.resize(image, 6)).shape == (3, 6, 7)
    assert back(F.resize(image, (20, 5))).shape == (3, 20, 5)
    np.testing.assert_array_equal(back(F.rotate(image, 0)), planes)
    half = back(F.rotate(image, 180))
    np.testing.assert_array_equal(half, planes[:, ::-1, ::-1])


def test_random_transforms_keep_shapes_and_seed() -> None:
    chain = transforms.Compose([
        transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip(),
        transforms.RandomVerticalFlip(), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.RandomGrayscale(0.5), transforms.RandomRotation(30),
        transforms.RandomCrop(8, padding=2), transforms.ToTensor(),
        transforms.RandomErasing(1.0, value="random")])
    draws = []
    for _ in range(2):
        ad.manual_seed(3)
        draws.append(np.stack([chain(IMAGE).numpy() for _ in range(5)]))
    assert draws[0].shape == (5, 3, 8, 8)
    np.testing.assert_array_equal(*draws)
    assert np.std(draws[0], 0).max() > 0


def test_draws_are_the_peers() -> None:
    """Factors of ColorJitter after the order, choices by Python's `random`, as torchvision."""
    ad.manual_seed(1)
    order = ad.randperm(4).tolist()
    factors = [0.6 + 0.8 * ad.rand(1).item() for _ in range(3)] + [-0.1 + 0.2 * ad.rand(1).item()]
    image = ad.tensor(RNG.random((3, 6, 7), dtype=np.float32))
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    wanted = image
    for i in order:
        wanted = steps[i](wanted, factors[i])
    ad.manual_seed(1)
    got = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)(image)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), atol=1e-6)
    adds = [lambda x, k=k: x * 10 + k for k in range(4)]
    random.seed(3)
    names = [random.choices(range(4), [1, 2, 3, 4])[0] for _ in range(6)]
    random.seed(3)
    choice = transforms.RandomChoice(adds, p=[1, 2, 3, 4])
    assert [choice(0) for _ in range(6)] == names
    random.seed(0)
    assert transforms.RandomOrder(adds)(0) == 2013          # the shuffled order 2, 0, 1, 3
    with pytest.raises(ValueError, match="2 probabilities for 4"):
        transforms.RandomChoice(adds, p=[1, 2])


def test_luma_of_whole_numbers_is_cut_for_tensors() -> None:
    image = ad.tensor([[[255]], [[254]], [[2]]], dtype=ad.uint8)
    assert F.rgb_to_grayscale(image).item() == int(0.2989 * 255 + 0.587 * 254 + 0.114 * 2)
    assert F.rgb_to_grayscale(ad.ones(3, 1, 1)).item() == pytest.approx(0.9999)


def test_newer_names() -> None:
    """`transforms.v2` and the enumerations of weights, which name what is not fetched."""
    from adjoint.vision.transforms import v2

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    image = v2.ToImage()(pixels)
    assert image.dtype == ad.uint8 and np.array_equal(image.numpy(), pixels.transpose(2, 0, 1))
    assert v2.ToImage()(image) is image and v2.ToImage()(pixels[..., 0]).shape == (1, 4, 4)
    assert v2.ToDtype(ad.float32)(image).max() == 47 and v2.Resize is transforms.Resize
    scaled = v2.Compose([v2.ToImage(), v2.ToDtype(ad.float32, scale=True)])(pixels)
    np.testing.assert_allclose(scaled.numpy(), image.numpy() / 255, rtol=1e-6)
    assert repr(v2.ToDtype(ad.float32, True)) == "ToDtype(scale=True)"
    weights = models.ResNet18_Weights.DEFAULT
    assert weights is models.ResNet18_Weights.IMAGENET1K_V1
    assert weights.transforms()(ad.rand(3, 300, 280)).shape == (3, 224, 224)
    with pytest.raises(NotImplementedError, match="not fetched"):
        models.resnet18(weights=weights)


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        F.to_tensor(ad.ones(1))
    with pytest.raises(TypeError, match="float tensor"):
        F.normalize(ad.ones(3, 2, 2, dtype=ad.uint8), [0.5], [0.5])
    with pytest.raises(ValueError, match="zero"):
        F.normalize(ad.ones(1, 2, 2), [0.5], [0.0])
    with pytest.raises(ValueError, match="larger than input"):
        transforms.RandomCrop(20)(IMAGE)
    with pytest.raises(NotImplementedError, match="load a local file"):
        models.resnet18(pretrained=True)
    with pytest.raises(ValueError, match="hue_factor"):
        F.adjust_hue(IMAGE, 0.7)


@pytest.mark.parametrize("name, call", [
    ("resize", lambda f, i: f.resize(i, (7, 9))), ("resize up", lambda f, i: f.resize(i, (31, 40))),
    ("resize one", lambda f, i: f.resize(i, 6)), ("hflip", lambda f, i: f.hflip(i)),
    ("center", lambda f, i: f.center_crop(i, (9, 25))), ("pad", lambda f, i: f.pad(i, 3)),
    ("reflect", lambda f, i: f.pad(i, [1, 2], padding_mode="reflect")),
    ("bright", lambda f, i: f.adjust_brightness(i, 1.7)),
    ("contrast", lambda f, i: f.adjust_contrast(i, 0.4)),
    ("saturation", lambda f, i: f.adjust_saturation(i, 1.9)),
    ("tensor", lambda f, i: f.to_tensor(i)),
    ("grey", lambda f, i: f.rgb_to_grayscale(i, 3))])
def test_functional_like_the_peer(name: str, call: Any) -> None:
    """Pillow images: within one level of 255."""
    theirs = peer("transforms.functional")
    from PIL import Image
    image = Image.fromarray(IMAGE)
    a, b = np.asarray(call(F, image)), np.asarray(call(theirs, image))
    assert a.shape == b.shape
    bound = 1e-6 if name == "tensor" else 1
    assert np.abs(a.astype(float) - b.astype(float)).max() <= bound


@pytest.mark.parametrize("shift", [-0.5, -0.1, 0.2, 0.5])
def test_hue_like_the_peer(shift: float) -> None:
    """Float tensors: Pillow rounds the hue to 8 bits, tensors do not."""
    theirs = peer("transforms.functional")
    torch = importlib.import_module("torch")
    x = RNG.random((3, 6, 7), dtype=np.float32)
    np.testing.assert_allclose(F.adjust_hue(ad.tensor(x), shift).numpy(),
                               theirs.adjust_hue(torch.tensor(x), shift).numpy(), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"nrow": 3, "padding": 1}, {"normalize": True},
                                     {"normalize": True, "scale_each": True, "pad_value": 0.5},
                                     {"normalize": True, "value_range": (0.2, 0.7)}])
@pytest.mark.parametrize("channels", [1, 3])
def test_grid_like_the_peer(options: dict[str, Any], channels: int) -> None:
    theirs = peer("utils")
    torch = importlib.import_module("torch")
    x = RNG.random((7, channels, 4, 5), dtype=np.float32)
    np.testing.assert_allclose(utils.make_grid(ad.tensor(x), **options).numpy(),
                               theirs.make_grid(torch.tensor(x), **options).numpy(), atol=1e-6)


@pytest.mark.parametrize("name", [
    "resnet18", "resnet50", "vgg11_bn", "alexnet", "squeezenet1_0", "squeezenet1_1", "densenet121",
    "densenet161", "mobilenet_v2", "vit_b_16", "vit_h_14"])
def test_networks_have_the_peers_parameters(name: str) -> None:
    theirs, torch = peer("models"), importlib.import_module("torch")
    with torch.device("meta"):
        theirs = getattr(theirs, name)()
    with ad.device("meta"):
        mine = getattr(models, name)()
    assert {k: tuple(v.shape) for k, v in mine.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()}


def test_a_vision_transformer_begins_and_computes_as_the_peers() -> None:
    ad.manual_seed(3)
    net = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3, representation_size=8)
    net.heads.head.weight.data.normal_()
    wanted = [[1.0592706203460693, 0.7948764562606812, 0.5149852633476257],
              [1.3136041164398193, 0.6531661748886108, 0.6271848082542419]]
    np.testing.assert_allclose(net(ad.rand(2, 3, 32, 32)).tolist(), wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="images of 32 x 32"):
        net(ad.rand(2, 3, 16, 16))
    with pytest.raises(ValueError, match="indivisible by patch size"):
        models.VisionTransformer(32, 7, 2, 2, 16, 32)


def test_a_densenet_that_saves_memory_has_the_same_gradients() -> None:
    grads = []
    for lean in (False, True):
        ad.manual_seed(0)
        net = models.DenseNet(8, (2, 2), 8, memory_efficient=lean, num_classes=4)
        net(ad.rand(2, 3, 32, 32)).square().sum().backward()
        grads.append(net.features.conv0.weight.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-6)


def test_shared_layers() -> None:
    from adjoint.vision import ops

    same = ops.Conv2dNormActivation(3, 4, (3, 5), dilation=2, activation_layer=ad.nn.SiLU)
    assert same(ad.ones(1, 3, 7, 9)).shape == (1, 4, 7, 9) and same[0].bias is None
    plain = ops.Conv2dNormActivation(3, 4, norm_layer=None, activation_layer=None)
    assert len(plain) == 1 and plain[0].bias is not None
    mlp = ops.MLP(3, [4, 5], norm_layer=ad.nn.LayerNorm, dropout=0.1, inplace=True)
    assert [type(m).__name__ for m in mlp] == ["Linear", "LayerNorm", "ReLU", "Dropout", "Linear",
                                               "Dropout"]
    x = ad.rand(2, 4, 3, 3)
    gate = ops.SqueezeExcitation(4, 2)
    np.testing.assert_allclose(
        (gate(x) / x).mean((2, 3)).tolist(), gate.scale_activation(gate.fc2(gate.fc1(
            x.mean((2, 3), keepdim=True)).relu()))[..., 0, 0].tolist(), rtol=1e-5)
    assert ops.Permute([0, 3, 1, 2])(x).shape == (2, 3, 4, 3)
    assert models.list_models(include="dense*", exclude="*1") == ["densenet169"]
    with pytest.raises(ValueError, match="Unknown model nope"):
        models.get_model("nope")


def test_small_resnet_trains() -> None:
    ad.manual_seed(0)
    net = models.ResNet(models.BasicBlock, (1, 1, 1, 1), num_classes=3)
    optimizer = ad.optim.SGD(net.parameters(), lr=0.05)
    x, y = ad.randn(6, 3, 32, 32), ad.tensor([0, 1, 2, 0, 1, 2])
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = ad.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_png_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "grid.png"
    images = ad.tensor(RNG.random((4, 3, 5, 6), dtype=np.float32))
    utils.save_image(images, path, nrow=2, padding=1)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">II", data[16:24]) == (15, 13)
    start = data.index(b"IDAT") + 4
    n = struct.unpack(">I", data[start - 8:start - 4])[0]
    rows = np.frombuffer(zlib.decompress(data[start:start + n]), np.uint8).reshape(13, 1 + 45)
    assert not rows[:, 0].any()
    pixels = rows[:, 1:].reshape(13, 15, 3)
    wanted = (images[0].numpy() * 255 + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(np.moveaxis(pixels[1:6, 1:7], -1, 0), wanted)
    buffer = io.BytesIO()
    utils.save_image(images[0], buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")


def test_served_as_torchvision(tmp_path: Path, digits: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("\n".join([
        "import torch, torchvision",
        "from torchvision import datasets, transforms",
        "from torchvision.utils import save_image",
        "import torchvision.transforms.functional as TF",
        f"data = datasets.MNIST({str(digits)!r}, transform=transforms.ToTensor())",
        "print(type(data[0][0]) is torch.Tensor, len(data), torchvision.models.resnet18)"]))
    out = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", str(script)],
                         capture_output=True, text=True)
    assert out.stdout.startswith("True 20"), out.stderr


def test_a_convolution_that_looks_where_it_is_told() -> None:
    r = np.random.default_rng(0)
    x, w, b = (ad.from_numpy(r.standard_normal(s)) for s in ((2, 4, 7, 6), (6, 2, 3, 2), (6,)))
    how = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2))
    want = ad.nn.functional.conv2d(x, w, b, groups=2, **how)
    still = ad.zeros(2, 2 * 2 * 6, *want.shape[2:], dtype=ad.float64)
    got = ops.deform_conv2d(x, still, w, b, **how)
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-12)
    half = ad.full((2, 2 * 6, *want.shape[2:]), 0.5, dtype=ad.float64)
    got = ops.deform_conv2d(x, still, w, mask=half, **how)
    np.testing.assert_allclose(got.numpy(), ((want - b[:, None, None]) / 2).numpy(), atol=1e-12)
    # a row and a column further: the image that is shifted; the halves between: the mean
    shifted = ad.nn.functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
    one = ad.ones(2, 2 * 9, 5, 4, dtype=ad.float64)
    v = ad.from_numpy(r.standard_normal((3, 4, 3, 3)))
    np.testing.assert_allclose(ops.deform_conv2d(x, one, v).numpy(),
                               ad.nn.functional.conv2d(shifted, v).numpy(), atol=1e-12)
    down = ad.zeros(2, 9, 2, 5, 4, dtype=ad.float64)
    down[:, :, 0] = 0.5
    mean = (x + ad.nn.functional.pad(x, (0, 0, 0, 1))[:, :, 1:]) / 2
    np.testing.assert_allclose(ops.deform_conv2d(x, down.flatten(1, 2), v).numpy(),
                               ad.nn.functional.conv2d(mean, v).numpy(), atol=1e-12)
    moved = ad.from_numpy(r.uniform(-1.9, 1.9, (1, 4 * 4, 2, 2)))
    scale = ad.from_numpy(r.uniform(size=(1, 2 * 4, 2, 2)))
    given = [x[:1, :2, :3, :3].clone(), moved, ad.from_numpy(r.standard_normal((2, 1, 2, 2))),
             scale]
    assert ad.autograd.gradcheck(lambda x, o, w, m: ops.deform_conv2d(x, o, w, mask=m),
                                 [t.requires_grad_() for t in given])


def test_a_layer_of_moved_taps() -> None:
    ad.manual_seed(0)
    layer = ops.DeformConv2d(2, 4, 3, padding=1, groups=2)
    ad.manual_seed(0)
    usual = ad.nn.Conv2d(2, 4, 3, padding=1, groups=2)
    x = ad.randn(1, 2, 5, 5)
    assert ad.allclose(layer(x, ad.zeros(1, 18, 5, 5)), usual(x), atol=1e-6)
    assert str(layer) == ("DeformConv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), "
                          "groups=2)")
    with pytest.raises(ValueError, match=r"it is \[1, 18 per group of channels, 5, 5\]"):
        layer(x, ad.zeros(1, 18, 3, 3))
    with pytest.raises(ValueError, match=r"mask has shape \[1, 3, 5, 5\], needs \[1, 9, 5, 5\]"):
        layer(x, ad.zeros(1, 18, 5, 5), ad.ones(1, 3, 5, 5))


class _Pairs:
    """A data set of its own for either package's base."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return (i, -i) if self.transforms is None else self.transforms(i, -i)

    def extra_repr(self) -> str:
        return "Split: a\nMode: 3"


def test_the_base_of_data_sets_joins_its_transforms() -> None:
    """F41: what a program's own data set inherits, beside torchvision's."""
    told = []
    for module in (datasets, peer("datasets")):
        made = type("Mine", (_Pairs, module.VisionDataset), {})
        plain, one = made("r"), made("r", transform=lambda x: x * 10)
        both = made("r", transforms=lambda x, y: (x + 1, y + 1))
        with pytest.raises(ValueError, match="Only transforms or transform/target_transform"):
            made("r", transforms=abs, transform=abs)
        changes = importlib.import_module(module.__name__.replace("datasets", "transforms"))
        chain = changes.Compose([changes.ToTensor(), changes.Normalize(0.5, 0.5)])
        told.append((plain[2], one[2], both[2], repr(plain), repr(made("r", transform=chain)),
                     repr(made("r", chain)), repr(made(None, target_transform=chain)),
                     repr(made("r", transform=chain).transforms)))
    assert told[0] == told[1]


def test_files_in_folders_of_classes(tmp_path: Path) -> None:
    """F41: DatasetFolder with a loader of its own, beside torchvision's."""
    for name in ("b/2.npy", "b/1.npy", "a/deep/3.NPY", "a/x.txt", "c/y.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    told = []
    for module in (datasets, peer("datasets")):
        read = module.DatasetFolder(str(tmp_path), lambda p: Path(p).read_text(), (".npy",),
                                    transform=str.upper, allow_empty=True)
        by_rule = module.DatasetFolder(tmp_path, str, is_valid_file=lambda p: "." in p)
        errors = []
        for options in ({"extensions": ".npy"}, {}, {"extensions": ".b",
                                                     "is_valid_file": bool}):
            with pytest.raises((FileNotFoundError, ValueError)) as caught:
                module.DatasetFolder(str(tmp_path), str, **options)
            errors.append((type(caught.value).__mro__[-3].__name__, str(caught.value)))
        with pytest.raises(FileNotFoundError) as none:
            module.folder.find_classes(str(tmp_path / "c"))
        told.append((list(read), read.classes, read.class_to_idx, read.targets, read.samples,
                     [(str(p), c) for p, c in by_rule.samples], errors,
                     str(none.value), module.folder.is_image_file("A.JPG"),
                     module.folder.is_image_file("A.npy"), module.folder.IMG_EXTENSIONS))
    assert told[0] == told[1]
    assert [text for text, _ in told[0][0]] == ["A/DEEP/3.NPY", "B/1.NPY", "B/2.NPY"]
