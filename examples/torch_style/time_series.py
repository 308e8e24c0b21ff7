"""Two LSTM cells learn sine waves with L-BFGS, then go on by themselves.

A program for `torch`; run it here by `adjoint run --as-torch examples/torch_style/time_series.py`.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 16)
        self.lstm2 = nn.LSTMCell(16, 16)
        self.linear = nn.Linear(16, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 16, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 16, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 16, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 16, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4, help="steps to run")
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    opt = parser.parse_args(argv)
    np.random.seed(2)
    torch.manual_seed(0)
    period, length, count = 8, 40, 12
    x = np.arange(length) + np.random.randint(-4 * period, 4 * period, count).reshape(count, 1)
    data = np.sin(x / 1.0 / period).astype("float64")
    input, target = torch.from_numpy(data[3:, :-1]), torch.from_numpy(data[3:, 1:])
    test_input, test_target = torch.from_numpy(data[:3, :-1]), torch.from_numpy(data[:3, 1:])
    seq = Sequence()
    seq.double()
    if opt.write_init:
        torch.save(seq.state_dict(), opt.write_init)
    if opt.init:
        seq.load_state_dict(torch.load(opt.init))
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=8)
    losses = []
    for i in range(opt.steps):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()
            out = seq(input)
            loss = criterion(out, target)
            losses.append(loss.item())
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            future = 20
            pred = seq(test_input, future=future)
            loss = criterion(pred[:, :-future], test_target)
            print("test loss:", round(loss.item(), 6))
            y = pred.detach().numpy()
    assert y.shape == (3, length - 1 + future)
    return losses


if __name__ == "__main__":
    print(*(f"{loss:.9g}" for loss in main()))
