"""What operators did in older files, in today's operators: functions that go into an archive that needs them."""

from __future__ import annotations

_DIVIDES = """
def {name}(self: Tensor,
    other: {other}) -> Tensor:
  is_true = torch.any([{tests}])
  if is_true:
    result = torch.{div}(self, other)
  else:
    result = torch.{div}(self, other, rounding_mode="trunc")
  return result
"""
_FRACTIONAL = "torch.is_floating_point({0}), torch.is_complex({0})"
_OF_TENSORS = ", ".join(_FRACTIONAL.format(n) for n in ("self", "other"))
_OF_NUMBER = _FRACTIONAL.format("self") + ", isinstance(other, float), isinstance(other, complex)"
_OPTIONS = """dtype: Optional[int]=None,
    layout: Optional[int]=None,
    device: Optional[Device]=None,
    pin_memory: Optional[bool]=None"""
_OPTION_VALUES = "dtype=dtype, layout=layout, device=device, pin_memory=pin_memory"
_STEPS = """  if torch.__is__(steps, None):
    count = 100
  else:
    count = unchecked_cast(int, steps)
"""


def _fill(template: str, **parts: str) -> str:
    for name, text in parts.items():
        template = template.replace("{" + name + "}", text)
    return template


# Name of the entry in ops.upgraders -> source, and the least file version that its operators need.
OLD_OPERATORS: dict[str, tuple[str, int]] = {
    "div_Tensor_0_3": (_fill(_DIVIDES, name="div_Tensor_0_3", other="Tensor", div="div", tests=_OF_TENSORS), 4),
    "div_Scalar_0_3": (_fill(_DIVIDES, name="div_Scalar_0_3", other="number", div="div", tests=_OF_NUMBER), 4),
    "div__Tensor_0_3": (_fill(_DIVIDES, name="div__Tensor_0_3", other="Tensor", div="div_", tests=_OF_TENSORS), 4),
    "div__Scalar_0_3": (_fill(_DIVIDES, name="div__Scalar_0_3", other="number", div="div_", tests=_OF_NUMBER), 4),
    "div_out_0_3": (
        f"""
def div_out_0_3(self: Tensor,
    other: Tensor,
    out: Tensor) -> Tensor:
  is_true = torch.any([{_OF_TENSORS}, {_FRACTIONAL.format("out")}])
  if is_true:
    result = torch.div(self, other, out=out)
  else:
    result = torch.div(self, other, rounding_mode="trunc", out=out)
  return result
""",
        4,
    ),
    "full_0_4": (
        f"""
def full_0_4(size: List[int],
    fill_value: number,
    {_OPTIONS}) -> Tensor:
  is_whole = torch.__and__(torch.__is__(dtype, None), torch.__not__(isinstance(fill_value, complex)))
  if is_whole:
    result = torch.full(size, float(fill_value), {_OPTION_VALUES})
  else:
    result = torch.full(size, fill_value, {_OPTION_VALUES})
  return result
""",
        5,
    ),
    "full_out_0_4": (
        """
def full_out_0_4(size: List[int],
    fill_value: number,
    out: Tensor) -> Tensor:
  is_complex = isinstance(fill_value, complex)
  if is_complex:
    result = torch.full(size, fill_value, out=out)
  else:
    result = torch.full(size, float(fill_value), out=out)
  return result
""",
        5,
    ),
    "linspace_0_7": (
        f"""
def linspace_0_7(start: number,
    end: number,
    steps: Optional[int]=None,
    {_OPTIONS}) -> Tensor:
{_STEPS}  return torch.linspace(start, end, count, {_OPTION_VALUES})
""",
        8,
    ),
    "linspace_out_0_7": (
        f"""
def linspace_out_0_7(start: number,
    end: number,
    steps: Optional[int],
    out: Tensor) -> Tensor:
{_STEPS}  return torch.linspace(start, end, count, out=out)
""",
        8,
    ),
    "logspace_0_8": (
        f"""
def logspace_0_8(start: number,
    end: number,
    steps: Optional[int]=None,
    base: float=10.,
    {_OPTIONS}) -> Tensor:
{_STEPS}  return torch.logspace(start, end, count, base, {_OPTION_VALUES})
""",
        9,
    ),
    "logspace_out_0_8": (
        f"""
def logspace_out_0_8(start: number,
    end: number,
    steps: Optional[int],
    base: float,
    out: Tensor) -> Tensor:
{_STEPS}  return torch.logspace(start, end, count, base, out=out)
""",
        9,
    ),
}

# Those that today's operator, called as it was then, does as well: its name, and the version it needs.
SAME_TODAY: dict[str, tuple[str, int]] = {"gelu_0_9": ("torch.gelu", 10), "gelu_out_0_9": ("torch.gelu", 10)}
