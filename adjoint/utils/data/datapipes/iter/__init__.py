"""Pipes that are streams.

>>> from adjoint.utils.data.datapipes.iter import IterableWrapper
>>> list(IterableWrapper("abc").zip(IterableWrapper(range(3))))
[('a', 0), ('b', 1), ('c', 2)]
"""
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.callable import CollatorIterDataPipe as Collator
from adjoint.utils.data.datapipes.iter.callable import MapperIterDataPipe as Mapper
from adjoint.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler
from adjoint.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe as Shuffler
from adjoint.utils.data.datapipes.iter.combining import ConcaterIterDataPipe as Concater
from adjoint.utils.data.datapipes.iter.combining import DemultiplexerIterDataPipe as Demultiplexer
from adjoint.utils.data.datapipes.iter.combining import ForkerIterDataPipe as Forker
from adjoint.utils.data.datapipes.iter.combining import MultiplexerIterDataPipe as Multiplexer
from adjoint.utils.data.datapipes.iter.combining import ZipperIterDataPipe as Zipper
from adjoint.utils.data.datapipes.iter.files import FileListerIterDataPipe as FileLister
from adjoint.utils.data.datapipes.iter.files import FileOpenerIterDataPipe as FileOpener
from adjoint.utils.data.datapipes.iter.files import RoutedDecoderIterDataPipe as RoutedDecoder
from adjoint.utils.data.datapipes.iter.files import StreamReaderIterDataPipe as StreamReader
from adjoint.utils.data.datapipes.iter.grouping import BatcherIterDataPipe as Batcher
from adjoint.utils.data.datapipes.iter.grouping import GrouperIterDataPipe as Grouper
from adjoint.utils.data.datapipes.iter.grouping import UnBatcherIterDataPipe as UnBatcher
from adjoint.utils.data.datapipes.iter.selecting import FilterIterDataPipe as Filter
from adjoint.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter
from adjoint.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe as IterableWrapper

__all__ = ["Batcher", "Collator", "Concater", "Demultiplexer", "FileLister", "FileOpener",
           "Filter", "Forker", "Grouper", "IterDataPipe", "IterableWrapper", "Mapper",
           "Multiplexer", "RoutedDecoder", "Sampler", "ShardingFilter", "Shuffler",
           "StreamReader", "UnBatcher", "Zipper"]
