"""A language model of words: embedding, two LSTM layers, tied decoder, truncated backpropagation,
clipped gradients, the learning rate cut when validation stops improving.

A program for `torch`; run it here by `adjoint run --as-torch examples/torch_style/word_lm.py`.
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

SENTENCES = """the king has a crown and the queen has a ring
the queen gave the ring to the king and the king gave the crown to the queen
a ring is small and a crown is heavy said the queen to the king
the king said a heavy crown is a crown for a king
the queen has a small ring and a heavy crown""".splitlines()


class Dictionary:
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


def tokenize(dictionary, lines):
    ids = []
    for line in lines:
        words = [*line.split(), "<eos>"]
        for word in words:
            dictionary.add_word(word)
        ids.append(torch.tensor([dictionary.word2idx[w] for w in words]).type(torch.int64))
    return torch.cat(ids)


class RNNModel(nn.Module):
    """Encoder, recurrent module and decoder."""

    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.5, tie_weights=False):
        super().__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError("with tied weights, nhid must be equal to the embedding size")
            self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers

    def init_weights(self):
        initrange = 0.1
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type == "LSTM":
            return (weight.new_zeros(self.nlayers, bsz, self.nhid),
                    weight.new_zeros(self.nlayers, bsz, self.nhid))
        return weight.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    """Cut hidden states off from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz, device):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous().to(device)


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].view(-1)


def evaluate(model, source, bptt, criterion):
    model.eval()
    total = 0.
    hidden = model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, bptt):
            data, targets = get_batch(source, i, bptt)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="LSTM", choices=["LSTM", "GRU"])
    parser.add_argument("--emsize", type=int, default=32)
    parser.add_argument("--nlayers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--bptt", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--tied", action="store_true", default=True)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(1111)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")

    dictionary = Dictionary()
    corpus = tokenize(dictionary, SENTENCES * 4)
    train_data, val_data = batchify(corpus, 4, device), batchify(corpus[:60], 2, device)
    model = RNNModel(args.model, len(dictionary), args.emsize, args.emsize, args.nlayers,
                     args.dropout, args.tied).to(device)
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        with open(args.init, "rb") as f:
            model.load_state_dict(torch.load(f))
    model.rnn.flatten_parameters()
    criterion = nn.NLLLoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    losses = []
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        model.train()
        hidden = model.init_hidden(4)
        for i in range(0, train_data.size(0) - 1, args.bptt):
            data, targets = get_batch(train_data, i, args.bptt)
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            losses.append(loss.item())
        val_loss = evaluate(model, val_data, args.bptt, criterion)
        print(f"| end of epoch {epoch:3d} | time: {time.time() - start:5.2f}s "
              f"| valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}")
        scheduler.step(val_loss)
    return losses


if __name__ == "__main__":
    print(*(f"{loss:.9g}" for loss in main()))
