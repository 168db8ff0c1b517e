"""A process that compiles kernels for another one: tasks come in on standard input, object files go out."""

from __future__ import annotations

import os
import pickle
import sys
from importlib import import_module

from gpujit.kernels.build import DONE, FAILED, REFUSED, receive, send
from gpujit.kernels.tile import NotRendered
from gpujit.support.errors import InternalError


def main(module: str) -> None:
    """Build what ``module`` builds (a ``build.Kind``'s) until the parent closes the pipe or is gone."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Nothing else may write among the answers.
    os.dup2(2, 1)
    builder = import_module(module)
    send(answers, builder.greeting())
    while True:
        try:
            task = pickle.loads(receive(requests))
        except EOFError:
            break
        try:
            found = builder.build(*task)
        except NotRendered as fault:
            send(answers, REFUSED)
            send(answers, fault.message.encode())
        except InternalError as fault:
            send(answers, FAILED)
            send(answers, fault.message.encode())
        else:
            send(answers, DONE)
            send(answers, found.image)
            send(answers, found.source.encode())
    sys.stderr.flush()
    # Nothing is left to tidy up, and the parent waits.
    os._exit(0)
