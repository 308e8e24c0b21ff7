"""A graph convolutional network that finds communities (T. Kipf and M. Welling, 2016)."""
import argparse
import math

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
import adjoint.optim as optim
from adjoint.nn.modules.module import Module
from adjoint.nn.parameter import Parameter


def communities(nodes, classes, seed):
    """(normalized adjacency, features, labels) of a random graph with dense blocks."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, nodes)
    same = labels[:, None] == labels[None]
    adj = np.triu(rng.random((nodes, nodes)) < np.where(same, 0.2, 0.02), 1)
    adj = adj + adj.T + np.eye(nodes)
    degree = 1 / np.sqrt(adj.sum(1))
    features = rng.standard_normal((nodes, 16)) + 0.8 * rng.standard_normal((classes, 16))[labels]
    return degree[:, None] * adj * degree[None], features, labels


class GraphConvolution(Module):
    """adj (x W) + b."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.empty(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1. / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.mm(adj, support)
        return output if self.bias is None else output + self.bias

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double()
    return (correct.sum() / len(labels)).item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(42)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(42)
    adj, features, labels = communities(200, 4, 0)
    adj = torch.from_numpy(adj).to(torch.get_default_dtype())
    features = torch.from_numpy(features).to(torch.get_default_dtype())
    labels = torch.LongTensor(labels)
    idx_train, idx_test = torch.LongTensor(range(60)), torch.LongTensor(range(100, 200))
    model = GCN(features.shape[1], args.hidden, int(labels.max().item()) + 1, args.dropout)
    print(model)
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    losses = []
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        losses.append(loss_train.item())
        model.eval()
        output = model(features, adj)
        if epoch % 10 == 0:
            print(f"Epoch: {epoch:04d} loss_train: {losses[-1]:.4f} "
                  f"acc_test: {accuracy(output[idx_test], labels[idx_test]):.4f}")
    return losses


if __name__ == "__main__":
    main()
