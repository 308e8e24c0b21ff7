"""L1: the op record, dispatch by operand type, the tensor and the node it points to."""
