"""The exception tree.

    AdjointError
    ├── ShapeError        also ValueError, RuntimeError    shapes or sizes that do not fit
    ├── DTypeError        also TypeError, RuntimeError     dtypes that do not fit
    ├── ArgumentError     also ValueError, RuntimeError    a bad value of an argument
    ├── IndexOutOfRange   also IndexError                  an index outside of its axis
    ├── AutogradError     also RuntimeError                graphs, versions, backward
    │   └── GradcheckError
    ├── MetaError         also RuntimeError                a value is needed and there is no storage
    └── NotSupported      also NotImplementedError         known, and deliberately absent

Every class is also the builtin a caller would catch; where PyTorch raises RuntimeError for
the same mistake, that too.
"""


class AdjointError(Exception):
    """Root of every exception raised on purpose by this package."""


class ShapeError(AdjointError, ValueError, RuntimeError):
    """Shapes or sizes of operands do not fit together."""


class DTypeError(AdjointError, TypeError, RuntimeError):
    """The dtypes of operands are not accepted by the function."""


class ArgumentError(AdjointError, ValueError, RuntimeError):
    """An argument has a value outside of what the function accepts."""


class IndexOutOfRange(AdjointError, IndexError):
    """An index lies outside of the axis it refers to."""


class AutogradError(AdjointError, RuntimeError):
    """A graph was built, changed or walked in a way that has no right answer.

    `reason` names the mistake for tools ("no graph", "not scalar", "overwritten", "freed", "nan";
    "" where it has no name), `about` is what it happened to: a tensor or a storage cell.
    """

    def __init__(self, *args: object, reason: str = "", about: object = None) -> None:
        super().__init__(*args)
        self.reason, self.about = reason, about


class GradcheckError(AutogradError):
    """An analytic derivative differs from the numerical one."""


class MetaError(AdjointError, RuntimeError):
    """The value of a storage-less (meta) tensor was asked for."""


class NotSupported(AdjointError, NotImplementedError):
    """The feature is known and deliberately not offered; the message says what to use."""
