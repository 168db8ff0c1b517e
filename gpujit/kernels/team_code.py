"""The worker team's native code as LLVM IR: a list of steps run by several threads, with a barrier after each step.

A team is a block of memory (``OFFSETS``) that the caller and the workers share. A job is a list of function pointers
and of argument blocks; a step is called as ``step(block, part, parts)`` by each of the ``parts`` threads. Counters only
grow, so a slow worker never mistakes one job for the next. Waiting spins first and then blocks: in the kernel (futex)
between jobs, by giving the processor away inside one.
"""

from __future__ import annotations

import platform
import sys

# Words that different threads write lie on cache lines of their own. Offsets in bytes.
OFFSETS = {
    "generation": 0,  # i32: jobs started
    "arrived": 64,  # i64: parts of steps done
    "sleepers": 128,  # i32: workers blocked in the kernel
    "stop": 192,  # i32: not 0 when workers shall leave
    "busy": 256,  # i32: 1 while a job runs
    "functions": 320,  # the job: addresses of functions and blocks, number of steps, ``arrived`` at its start
    "blocks": 328,
    "count": 336,
    "base": 344,
    "parts": 352,  # threads of the team, the caller included
}
TEAM_BYTES = 384

# Where an array object of NumPy on CPython keeps the address of its data: behind the header of every object.
DATA_OFFSET = 2 * 8

# Turns of a waiting loop before a worker sleeps (some 50 us), and before a thread inside a job gives way.
SPINS_BEFORE_SLEEP = 1_000
SPINS_BEFORE_YIELD = 2_000

_FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98}
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


def _pause() -> tuple[str, str]:
    """The declaration and the call of what tells a processor that its thread only waits."""
    if platform.machine() in ("x86_64", "AMD64"):
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    if platform.machine() in ("aarch64", "arm64"):
        return "declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"
    return "", ""


def _sleep() -> tuple[str, str]:
    """Instructions that block while the generation is ``%seen``, and that wake everybody blocked."""
    number = _FUTEX.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        return "%slept = call i32 @usleep(i32 50)", ""
    call = f"call i64 (i64, ...) @syscall(i64 {number}, ptr %generation, i64"
    wait = f"%slept = {call} {_WAIT_PRIVATE}, i64 %seen64, ptr null, ptr null, i64 0)"
    return wait, f"%woken = {call} {_WAKE_PRIVATE}, i64 2147483647, ptr null, ptr null, i64 0)"


def team_ir() -> str:
    """LLVM IR of ``gpujit_team_run(team, functions, blocks, count)``, ``gpujit_team_work(team, part)`` and
    ``gpujit_team_call(team, function, block, arrays)``: one step whose block holds, in its first ``arrays`` words, the
    addresses of NumPy array objects, which are replaced by those of their data.
    """
    wait, wake = _sleep()

    def word(name: str) -> str:
        return f"%{name} = getelementptr i8, ptr %team, i64 {OFFSETS[name]}"

    declaration, pause = _pause()
    words = {name: word(name) for name in OFFSETS}
    return f"""
{declaration}
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i64 @syscall(i64, ...)

; Steps one after the other by this thread as ``part`` of ``parts``; after each, everybody waits for everybody.
define internal void @steps(ptr %team, ptr %functions, ptr %blocks, i64 %count, i64 %base, i64 %part, i64 %parts) {{
entry:
  {words["arrived"]}
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %out
step:
  %i = phi i64 [0, %entry], [%next, %passed]
  %goal = phi i64 [%base, %entry], [%wanted, %passed]
  %fp = getelementptr ptr, ptr %functions, i64 %i
  %f = load ptr, ptr %fp
  %bp = getelementptr ptr, ptr %blocks, i64 %i
  %b = load ptr, ptr %bp
  call void %f(ptr %b, i64 %part, i64 %parts)
  %next = add i64 %i, 1
  %wanted = add i64 %goal, %parts
  %alone = icmp eq i64 %parts, 1
  br i1 %alone, label %passed, label %arrive
arrive:
  %before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %check
check:
  %spins = phi i64 [0, %arrive], [%more, %again]
  %now = load atomic i64, ptr %arrived acquire, align 8
  %done = icmp sge i64 %now, %wanted
  br i1 %done, label %passed, label %spin
spin:
  {pause}
  %more = add i64 %spins, 1
  %long = icmp sgt i64 %more, {SPINS_BEFORE_YIELD}
  br i1 %long, label %yield, label %again
yield:
  %yielded = call i32 @sched_yield()
  br label %again
again:
  br label %check
passed:
  %last = icmp eq i64 %next, %count
  br i1 %last, label %out, label %step
out:
  ret void
}}

define void @gpujit_team_run(ptr %team, ptr %functions.given, ptr %blocks.given, i64 %count.given) {{
entry:
  {chr(10).join("  " + w for w in words.values()).strip()}
  %size = load i64, ptr %parts
  %single = icmp eq i64 %size, 1
  br i1 %single, label %serial, label %claim
claim:
  %claimed = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue {{ i32, i1 }} %claimed, 1
  br i1 %mine, label %publish, label %serial
serial: ; the team has another job: this thread works alone
  call void @steps(ptr %team, ptr %functions.given, ptr %blocks.given, i64 %count.given, i64 0, i64 0, i64 1)
  ret void
publish:
  %start = load atomic i64, ptr %arrived seq_cst, align 8
  store ptr %functions.given, ptr %functions
  store ptr %blocks.given, ptr %blocks
  store i64 %count.given, ptr %count
  store i64 %start, ptr %base
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp sgt i32 %asleep, 0
  br i1 %some, label %wake, label %go
wake:
  {wake}
  br label %go
go:
  call void @steps(ptr %team, ptr %functions.given, ptr %blocks.given, i64 %count.given, i64 %start, i64 0, i64 %size)
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
}}

define void @gpujit_team_call(ptr %team, ptr %function, ptr %block, i64 %arrays) {{
entry:
  %functions = alloca ptr
  %blocks = alloca ptr
  store ptr %function, ptr %functions
  store ptr %block, ptr %blocks
  %any = icmp sgt i64 %arrays, 0
  br i1 %any, label %array, label %go
array:
  %i = phi i64 [0, %entry], [%next, %array]
  %place = getelementptr ptr, ptr %block, i64 %i
  %object = load ptr, ptr %place
  %field = getelementptr i8, ptr %object, i64 {DATA_OFFSET}
  %data = load ptr, ptr %field
  store ptr %data, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %arrays
  br i1 %more, label %array, label %go
go:
  call void @gpujit_team_run(ptr %team, ptr %functions, ptr %blocks, i64 1)
  ret void
}}

define void @gpujit_team_work(ptr %team, i64 %part) {{
entry:
  {chr(10).join("  " + w for w in words.values()).strip()}
  %size = load i64, ptr %parts
  br label %idle
idle:
  %seen = phi i32 [0, %entry], [%current, %work]
  %seen64 = zext i32 %seen to i64
  br label %look
look:
  %spins = phi i64 [0, %idle], [%more, %pause], [0, %sleep]
  %current = load atomic i32, ptr %generation acquire, align 4
  %leaving = load atomic i32, ptr %stop acquire, align 4
  %leave = icmp ne i32 %leaving, 0
  br i1 %leave, label %out, label %compare
compare:
  %new = icmp ne i32 %current, %seen
  br i1 %new, label %work, label %wait
wait:
  %more = add i64 %spins, 1
  %long = icmp sgt i64 %more, {SPINS_BEFORE_SLEEP}
  br i1 %long, label %sleep, label %pause
pause:
  {pause}
  br label %look
sleep:
  %up = atomicrmw add ptr %sleepers, i32 1 seq_cst
  {wait}
  %down = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
work:
  %job.functions = load ptr, ptr %functions
  %job.blocks = load ptr, ptr %blocks
  %job.count = load i64, ptr %count
  %job.base = load i64, ptr %base
  call void @steps(ptr %team, ptr %job.functions, ptr %job.blocks, i64 %job.count, i64 %job.base, i64 %part, i64 %size)
  br label %idle
out:
  ret void
}}
"""
