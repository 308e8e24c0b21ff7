"""`torch.fx`: programs traced into graphs of calls, which can be read, changed and run again.

    >>> import adjoint as ad
    >>> traced = symbolic_trace(ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.ReLU()))
    >>> [(node.op, str(node.target)) for node in traced.graph.nodes]
    [('placeholder', 'input'), ('call_module', '0'), ('call_module', '1'), ('output', 'output')]
"""
from adjoint.base.errors import missing as _missing
from adjoint.fx import rewriter as subgraph_rewriter  # noqa: F401  # PyTorch's name of the file
from adjoint.fx import tracer as proxy  # noqa: F401  # PyTorch's file of proxies and their tracers
from adjoint.fx.graph import Graph as Graph
from adjoint.fx.graph import PythonCode as PythonCode
from adjoint.fx.graph_module import GraphModule as GraphModule
from adjoint.fx.interpreter import Interpreter as Interpreter
from adjoint.fx.interpreter import Transformer as Transformer
from adjoint.fx.node import Node as Node
from adjoint.fx.node import map_arg as map_arg
from adjoint.fx.rewriter import replace_pattern as replace_pattern
from adjoint.fx.tracer import Proxy as Proxy
from adjoint.fx.tracer import Tracer as Tracer
from adjoint.fx.tracer import symbolic_trace as symbolic_trace
from adjoint.fx.tracer import wrap as wrap

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "PythonCode", "Tracer",
           "Transformer", "map_arg", "replace_pattern", "symbolic_trace", "wrap"]
__getattr__ = _missing("adjoint.fx")
