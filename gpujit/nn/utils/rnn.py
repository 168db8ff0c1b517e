"""Sequences of unequal length: padded to a common length, or packed without padding."""

from __future__ import annotations

from typing import NamedTuple

from gpujit import ops
from gpujit.nn.typing import Tensor
from gpujit.support.errors import LayerError


class PackedSequence(NamedTuple):
    """Sequences without padding, for recurrent layers: first steps of all of them, then the second ones, and so on.

    ``data [steps, ...]``; ``batch_sizes [longest]`` says how many sequences have each step; ``sorted_indices`` how the
    sequences were sorted, longest first, and ``unsorted_indices`` how to undo that; both None when they came sorted.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another."""
    if permutation is None:
        return None
    places = ops.arange(0, ops.numel(permutation), dtype=permutation.dtype)
    return ops.scatter(ops.zeros_like(permutation), 0, permutation, places)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Padded sequences ``[longest, batch, ...]`` (the first two swapped with ``batch_first``) as a PackedSequence.

    ``lengths`` are the sequences', longest first; in any order without ``enforce_sorted``.
    """
    counts = ops.tensor(list(lengths)) if isinstance(lengths, (list, tuple)) else lengths
    if enforce_sorted:
        data, batch_sizes = ops._pack_padded_sequence(input, counts, batch_first)
        return PackedSequence(data, batch_sizes, None, None)
    counts, order = ops.sort(counts, 0, True)
    chosen = ops.index_select(input, 0 if batch_first else 1, order)
    data, batch_sizes = ops._pack_padded_sequence(chosen, counts, batch_first)
    return PackedSequence(data, batch_sizes, order, invert_permutation(order))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded sequences and their lengths, in their first order. ``total_length`` is the length to pad to.

    Raises LayerError when ``total_length`` is below the longest sequence's.
    """
    longest = sequence.batch_sizes.shape[0]
    if total_length is not None:
        if total_length < longest:
            raise LayerError(f"pad_packed_sequence: total_length {total_length} is below the longest one's {longest}")
        longest = total_length
    padded, lengths = ops._pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest)
    order = sequence.unsorted_indices
    if order is not None:
        return ops.index_select(padded, 0 if batch_first else 1, order), ops.index_select(lengths, 0, order)
    return padded, lengths


def pad_sequence(
    sequences: list[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences ``[length, ...]`` padded to the longest: ``[longest, batch, ...]``, or batch first."""
    longest = 0
    for sequence in sequences:
        longest = max(longest, sequence.shape[0])
    padded: list[Tensor] = []
    for sequence in sequences:
        gap = longest - sequence.shape[0]
        margins = [0, 0] * (sequence.ndim - 1)
        if padding_side == "left":
            margins.append(gap)
            margins.append(0)
        elif padding_side == "right":
            margins.append(0)
            margins.append(gap)
        else:
            raise LayerError(f"pad_sequence: padding_side must be left or right, found {padding_side}")
        padded.append(ops.pad(sequence, margins, "constant", padding_value))
    return ops.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, each at its own length."""
    batch = padded_sequences if batch_first else ops.transpose(padded_sequences, 0, 1)
    found: list[Tensor] = []
    for i in range(lengths.shape[0]):
        found.append(ops.slice(batch[i], 0, 0, int(lengths[i])))
    return found


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences ``[length, ...]`` as a PackedSequence."""
    lengths: list[int] = []
    for sequence in sequences:
        lengths.append(sequence.shape[0])
    return pack_padded_sequence(pad_sequence(sequences), ops.tensor(lengths), False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence, in their first order."""
    padded, lengths = pad_packed_sequence(packed_sequences, True)
    return unpad_sequence(padded, lengths, True)
