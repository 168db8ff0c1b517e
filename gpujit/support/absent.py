"""Names of torch.jit that gpujit does not have, and what to do instead (but ``fuser``, a package here)."""

from __future__ import annotations

_PACKED = "weights are packed and operators fused in any case, by optimize_for_inference"
_FLATBUFFER = "flatbuffer files are neither read nor written; use archives: torch.jit.save, gpujit.save"

ABSENT: dict[str, str] = {
    "ONNXTracedModule": "it is a part of PyTorch's exporter",
    "RecursiveScriptClass": "objects of scripted classes come back as ScriptModule",
    "ScriptWarning": "nothing is warned of when modules are scripted; what does not compile is a SourceError",
    "enable_onednn_fusion": _PACKED,
    "jit_module_from_flatbuffer": _FLATBUFFER,
    "last_executed_optimized_graph": "ScriptModule.explain, gpujit.plot and `gpujit graph` show what runs",
    "onednn_fusion_enabled": _PACKED,
    "optimized_execution": "modules are interpreted as they were loaded, and optimised by optimize_for_inference",
    "save_jit_module_to_flatbuffer": _FLATBUFFER,
    "script_method": "methods are scripted with their module; mark those that forward does not call with export",
    "set_fusion_strategy": "nothing is profiled; plans are made for each kind of inputs, ahead by ScriptModule.warmup",
    "strict_fusion": "optimize_for_inference(strict=True) raises where a call falls back; explain says what was fused",
}
