"""What the gallery says: questions, answers, rules. Numbers that depend on a run are not here."""
from __future__ import annotations

from typing import NamedTuple


class Quiz(NamedTuple):
    """A multiple-choice question; the first choice is the right one, the page turns their order."""

    key: str
    question: str
    choices: tuple[str, ...]
    why: str


class Answer(NamedTuple):
    """An open question with a level and its answer."""

    level: str
    question: str
    answer: str


CONCEPTS = (
    Quiz("c1", "Why does the memory of a training step grow with the batch?",
         ("Forward keeps values for backward, and each has an entry for every sample",
          "The parameters are copied for every sample",
          "Backward stores one gradient of each parameter for every sample",
          "The optimizer keeps one state for every sample"),
         "Residuals have the batch axis. Gradients of parameters are sums over it: their size does "
         "not change."),
    Quiz("c2", "Why is reverse mode the one for training?",
         ("One backward pass gives the gradient for every parameter, because there is one loss",
          "It needs less memory than forward mode",
          "It is more exact than forward mode",
          "It works without knowing the rules of the operations"),
         "Forward mode needs a pass for each input direction, reverse mode one for each output. "
         "Reverse mode pays with memory."),
    Quiz("c3", "What does x.detach() do that no_grad() does not?",
         ("It cuts one tensor off its history, wherever it is used afterwards",
          "It switches recording off for everything in a block",
          "It copies the data",
          "It frees the graph of x"),
         "detach acts on a tensor and shares its memory; no_grad acts on the operations inside of "
         "a block."),
    Quiz("c4", "What does gradient checkpointing trade?",
         ("It runs parts of forward again and keeps less",
          "It keeps more and runs backward faster",
          "It rounds what is kept to fewer bits",
          "It moves parameters to another device"),
         "Only the inputs of a block stay; backward makes the rest again. At most one more forward "
         "pass: a third more arithmetic where backward costs two forwards."),
)

MEMORY = Quiz(
    "m1", "A 13B model on 8 A100s: forward succeeds, backward runs out of memory. What first?",
    ("Gradient checkpointing on the blocks",
     "A smaller learning rate",
     "More data-parallel ranks with the same batch on each",
     "retain_graph=True"),
    "What is left when forward has ended is at its largest: parameters, and all that it saved. "
    "Checkpointing shrinks the second part, changes no number, and is one line for each block.")

INTERVIEW = (
    Answer("Mid-level", "What is a computational graph, and what is dynamic about it?",
           "Nodes are operations, edges lead to what made their operands. It is built while the "
           "program runs, so it holds the branch that was taken and the loop as often as it ran; "
           "the next forward builds another. A static graph is made once and run many times: it "
           "can be optimized as a whole, but branches have to be part of it."),
    Answer("Junior", "Why call optimizer.zero_grad() in the loop?",
           "backward adds to .grad. Without clearing, each step uses the sum of all gradients so "
           "far: plain SGD then moves like heavy-ball momentum of strength 1, bounded while "
           "learning rate times curvature stays below 4, divergent above. Adding is wanted when "
           "several small batches stand for a large one."),
    Answer("Junior", "What does requires_grad=True say, and when is it False?",
           "That gradients are wanted for this tensor: operations on it are recorded. False for "
           "data, for frozen layers, and by default for what you make yourself; parameters of "
           "modules have it True."),
    Answer("Mid-level", "What does backward() do, in terms of the chain rule?",
           "It visits the nodes from the loss to the leaves, latest first: a node runs when "
           "all that flows into its output has been added up. Each node multiplies by its Jacobian "
           "from the left, a vector-Jacobian product; the Jacobian itself is never formed. At a "
           "leaf the result is added to .grad. What a node saved is released when it has run."),
    Answer("Senior", "no_grad or inference_mode for serving?",
           "Both record nothing. inference_mode also leaves out version counters and forbids its "
           "tensors in a graph for good, which turns a mistake into an error. Measure before you "
           "promise speed: on networks of large products the two differ by a few percent at most, "
           "more only where single operations are tiny."),
)

FAQ = (
    Answer("", "Do in-place operations break gradients?",
           "Only where they overwrite a value that some backward formula reads; then backward "
           "raises, and the message has both lines. On a leaf that requires grad they are refused; "
           "update parameters under no_grad."),
    Answer("", "Does keeping the loss in a list leak memory?",
           "After backward() what the graph saved has been released: a list of such losses costs "
           "little. Losses kept without a backward, or added up as tensors, keep everything. Keep "
           "loss.item()."),
    Answer("", "Why does backward ask for a gradient when the output is not a scalar?",
           "A vector-Jacobian product needs its vector. For a scalar it is 1; otherwise say which "
           "combination of outputs you mean: backward(gradient=v), or take a mean or sum first."),
    Answer("", "When is retain_graph=True right?",
           "When two backward passes share nodes: all but the last pass it. In a loop it keeps "
           "graphs alive; .grad then grows linearly with each pass, not exponentially."),
    Answer("", "How do I write a gradient that formulas of the library do not give?",
           "autograd.Function with forward and backward, or custom_vjp; save what backward reads, "
           "return None where nothing flows, and run gradcheck in float64."),
)

COMPARISON = (
    ("", "by hand", "by a tape"),
    ("work for a new model", "derive every formula again", "none: operations bring their rules"),
    ("a branch or a loop", "one derivation for each way", "what ran is what is differentiated"),
    ("errors", "a sign or a transpose, silently", "rules tested once, for every program"),
    ("cost of the gradient", "as good as the author", "two to three forwards for networks"),
    ("memory", "what the author keeps", "what the rules read, released as it is used"),
    ("where it still pays", "a fused formula (softmax with cross-entropy), an implicit solution",
     "everything else; such formulas enter as one operation"),
)

TAKEAWAYS = (
    ("The model in eight lines", (
        "Training follows the gradient of one number.",
        "The chain rule is all the mathematics; the rest is order and bookkeeping.",
        "Reverse mode: one pass for every parameter, since there is one loss.",
        "Forward writes a tape of operations with what their rules will read.",
        "backward multiplies a vector by each Jacobian; no Jacobian is built.",
        "What forward keeps grows with batch, length, width and depth.",
        "Four switches: requires_grad, detach, no_grad, retain_graph.",
        "16-bit floats of the fp16 kind need a scaled loss; bfloat16 does not.")),
    ("Memory", (
        "The peak is at the loss: all has been kept, nothing released.",
        "Weights, gradients and Adam's two moments are fixed; activations are yours to change.",
        "Keeping 1 of k block inputs and running blocks again costs at most one forward more.",
        "Recomputing only attention frees little once attention is tiled.",
        "Count bytes before you run; the predictor is exact.")),
    ("Gradients", (
        "None means never written; zeros mean written with zeros: different causes.",
        "Look at gradient norms each few steps: they jump before the loss does.",
        "Clear, forward, backward, clip, step: in this order.",
        "A gradient that is used twice is added, never assigned.",
        "Compare with differences in float64 before you trust a rule of your own.",
        "Cut the graph with detach where a value is a target.",
        "A loss for the log is a number: item().")),
    ("Graphs", (
        "A graph is built by running, and rebuilt by running again.",
        "Every node knows the line that made it.",
        "A value that is overwritten after it was saved is an error, not a wrong number.",
        "Parameters outside of the path have no gradient; ask why with the doctor.",
        "Custom rules compose with all others.")),
)

READING = (
    ("Autograd mechanics", "the notes of PyTorch on graphs, saved tensors, in-place operations",
     "https://docs.pytorch.org/docs/stable/notes/autograd.html"),
    ("Calculus on computational graphs: backpropagation", "C. Olah, 2015; the picture of summing "
     "over paths", "https://colah.github.io/posts/2015-08-Backprop/"),
    ("micrograd", "A. Karpathy; an engine for scalars that is read in one sitting",
     "https://github.com/karpathy/micrograd"),
    ("Deep Learning, sections 6.5 and 6.6", "Goodfellow, Bengio, Courville, 2016; the derivation",
     "https://www.deeplearningbook.org/contents/mlp.html"),
    ("Training deep nets with sublinear memory cost", "Chen, Xu, Zhang, Guestrin, 2016",
     "https://arxiv.org/abs/1604.06174"),
)

HISTORY = (
    ("1964", "Wengert: derivatives by a list of elementary steps, run forward."),
    ("1970", "Linnainmaa: rounding errors accumulated backward through a program: reverse mode."),
    ("1974", "Werbos: the same for the parameters of models."),
    ("1980", "Speelpenning: programs that write the reverse of programs."),
    ("1986", "Rumelhart, Hinton, Williams: back-propagation trains networks; the name stays."),
    ("1992", "Griewank: checkpoints, with memory and time growing as a logarithm."),
    ("2016", "Chen and others: checkpoints for networks, memory as the square root of depth."),
)

MODELS = (
    ("Not so", "Forward computes the gradient of every operation and puts it beside the tensor; "
     "backward() only sorts and multiplies them."),
    ("So it is", "Forward computes values only. It writes down which operation ran and keeps what "
     "that operation's rule will read. No gradient exists until backward() runs the rules, from "
     "the loss to the leaves, because each needs what comes from behind it."),
)

ANATOMY = (
    ("data", "The numbers."),
    ("grad_fn", "The node that made the tensor: which operation, not yet any gradient."),
    ("saved_tensors", "What the node keeps for its rule, until backward has run it."),
    ("grad", "Sum of what backward passes brought; None before the first."),
    ("requires_grad", "Whether gradients are wanted through this tensor."),
    ("next_functions", "The nodes that made the operands: the edges backward walks."),
)

__all__ = ["ANATOMY", "COMPARISON", "CONCEPTS", "FAQ", "HISTORY", "INTERVIEW", "MEMORY", "MODELS",
           "READING", "TAKEAWAYS", "Answer", "Quiz"]
