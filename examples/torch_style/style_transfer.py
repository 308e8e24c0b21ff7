"""The core of style transfer: a picture is optimised until a fixed network sees one picture's
content and another's style in it (L. Gatys, A. Ecker, M. Bethge, 2015)."""
import argparse
from collections import namedtuple

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
import adjoint.optim as optim

Features = namedtuple("Features", ["relu1", "relu2", "relu3"])


class Vgg(nn.Module):
    """A small stack of convolutions, cut into slices whose results are kept; never trained."""

    def __init__(self, requires_grad=False):
        super().__init__()
        self.slice1, self.slice2 = nn.Sequential(), nn.Sequential()
        self.slice3 = nn.Sequential()
        self.slice1.add_module("0", nn.Conv2d(3, 8, 3, padding=1))
        self.slice1.add_module("1", nn.ReLU())
        self.slice2.add_module("2", nn.MaxPool2d(2, 2))
        self.slice2.add_module("3", nn.Conv2d(8, 16, 3, padding=1))
        self.slice2.add_module("4", nn.ReLU())
        self.slice3.add_module("5", nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"))
        self.slice3.add_module("6", nn.InstanceNorm2d(16, affine=True))
        self.slice3.add_module("7", nn.ReLU())
        if not requires_grad:
            for param in self.parameters():
                param.requires_grad = False

    def forward(self, X):
        h1 = self.slice1(X)
        h2 = self.slice2(h1)
        return Features(h1, h2, self.slice3(h2))


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    features = y.view(b, ch, w * h)
    features_t = features.transpose(1, 2)
    return features.bmm(features_t) / (ch * h * w)


def normalize_batch(batch):
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (batch - mean) / std


def total_variation(x):
    return ((x[..., 1:, :] - x[..., :-1, :]).abs().mean()
            + (x[..., :, 1:] - x[..., :, :-1]).abs().mean())


def pictures():
    """(content: a disc, style: stripes) of 3 x 32 x 32 in [0, 1]."""
    y, x = np.mgrid[:32, :32]
    disc = np.hypot(x - 16, y - 16) < 9
    content = np.stack([disc, 0.5 * disc, 1 - disc])
    style = np.stack([0.5 + 0.5 * np.sin(0.9 * x + 0.4 * y + p) for p in (0, 1, 2)])
    return (torch.tensor(p, dtype=torch.get_default_dtype()).unsqueeze(0) for p in (content, style))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--content-weight", type=float, default=1.0)
    parser.add_argument("--style-weight", type=float, default=1e3)
    parser.add_argument("--lbfgs", action="store_true")
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    np.random.seed(0)
    torch.manual_seed(0)
    vgg = Vgg(requires_grad=False).to(torch.device("cpu")).eval()
    if args.write_init:
        torch.save(vgg.state_dict(), args.write_init)
    if args.init:
        vgg.load_state_dict(torch.load(args.init))
    content, style = pictures()
    features_c = vgg(normalize_batch(content))
    gram_style = [gram_matrix(y) for y in vgg(normalize_batch(style))]
    image = content.clone().requires_grad_(True)
    optimizer = (optim.LBFGS([image], max_iter=5) if args.lbfgs
                 else optim.Adam([image], lr=0.03, eps=1e-3))
    mse_loss = nn.MSELoss()
    losses = []

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        features = vgg(normalize_batch(image))
        content_loss = args.content_weight * mse_loss(features.relu2, features_c.relu2)
        style_loss = 0.0
        for ft_y, gm_s in zip(features, gram_style, strict=False):
            style_loss += mse_loss(gram_matrix(ft_y), gm_s.expand_as(gram_matrix(ft_y)))
        total = content_loss + args.style_weight * style_loss + 0.01 * total_variation(image)
        total.backward()
        losses.append(total.item())
        return total

    for step in range(args.steps):
        optimizer.step(closure)
        if step % 4 == 0:
            print(f"step {step}: total {losses[-1]:.4f}")
    result = F.interpolate(image.detach().clamp(0, 1), scale_factor=2, mode="bicubic")
    picture = result[0].mul(255).clamp(0, 255).byte().permute(1, 2, 0).numpy()
    print("picture", picture.shape, picture.dtype)
    return losses


if __name__ == "__main__":
    main()
