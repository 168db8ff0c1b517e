"""The worker team's native code as LLVM IR: a list of steps run by several threads, with a barrier after each step.

A team is a block of memory (``OFFSETS``) that the caller and the workers share. A job is a list of function pointers
and of argument blocks; a step is called as ``step(block, part, parts)`` once for each of the ``parts`` parts. A thread
does its own part and then those that nobody has begun, so that who wakes late, or is elsewhere, costs nothing but the
help it would have been. Counters only grow: ``arrived`` counts parts that are done, a step ends when it has come to the
step's goal, and a part is taken by raising its word to that goal.

A worker may come while a job ends. It says that it is inside before it looks whether the job is open, and the caller
closes the job before it looks who is inside: one of the two sees the other, and no job's list is read once it is over.

Who sleeps is not woken for a job known to be short, unless such jobs come often: by the time a worker is there, it is
nearly over, and on a busy machine the worker may take the caller's own processor.

Waiting spins first and then blocks: in the kernel (futex) between jobs, by giving the processor away inside one. A
worker spins for long when the job before came soon, and gives way to other programs meanwhile.

A worker that fell asleep on the processor where the caller runs now would be woken there, behind the caller, and start
when the job is half done: it is told to keep off that processor first.
"""

from __future__ import annotations

import platform
import sys
import time

from gpujit.kernels.target import SPINS_BEFORE_YIELD

# Words that different threads write lie on cache lines of their own. Offsets in bytes.
OFFSETS = {
    "generation": 0,  # i32: jobs started
    "arrived": 64,  # i64: parts of steps done
    "sleepers": 128,  # i32: workers blocked in the kernel
    "stop": 192,  # i32: not 0 when workers shall leave
    "busy": 256,  # i32: 1 while a job runs
    "open": 320,  # i32: 1 while workers may join the job
    "inside": 384,  # i32: workers that read the job, or look whether they may
    "functions": 448,  # the job: addresses of functions and blocks, number of steps, ``arrived`` at its start
    "blocks": 456,
    "count": 464,
    "base": 472,
    "parts": 480,  # threads of the team, the caller included
    "ended": 488,  # i64: when the last job ended
    "known": 512,  # i64 pairs: the first block of a job, and how long that took
    "allowed": 768,  # 16 words of bits: the processors that workers may use; nothing where they are not to be moved
    "taken": 896,  # a line for each part. i64: the goal of the last step whose part was taken
}
LINE = 64
# Of a part's line: i64, its thread's number; i32, the processor where it fell asleep.
THREAD, PROCESSOR = 8, 16
# Bytes of ``allowed``, and the processors that they tell of.
MASK_BYTES = 128


def team_bytes(size: int) -> int:
    """Bytes of a team of ``size`` threads."""
    return OFFSETS["taken"] + LINE * size


# Where an array object of NumPy on CPython keeps the address of its data: behind the header of every object.
DATA_OFFSET = 2 * 8

# Nanoseconds that a worker waits before it sleeps: when jobs come that often, and else. It gives way after the latter.
SPIN_LONG, SPIN_SHORT = 1_000_000, 50_000
# Nanoseconds of a job that is worth waking somebody for.
WAKE_WORTH = 150_000
# Turns of a waiting loop between two looks at the clock.
SPINS_A_LOOK = 32

_FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98}
_SET_AFFINITY = {"x86_64": 203, "AMD64": 203, "aarch64": 122, "arm64": 122}
_THREAD_NUMBER = {"x86_64": 186, "AMD64": 186, "aarch64": 178, "arm64": 178}
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


def can_move() -> bool:
    """Whether workers can be told which processors to use."""
    return sys.platform == "linux" and platform.machine() in _SET_AFFINITY


def _moving() -> tuple[str, str, str, str, str]:
    """Definitions; what the caller does before it wakes workers; what a worker does at first, before it sleeps, and
    before it leaves.
    """
    if not can_move():
        return "define internal void @keep_off(ptr %team) {\n  ret void\n}", "", "", "", ""
    machine = platform.machine()
    taken, allowed = (f"%{n} = getelementptr i8, ptr %team, i64 {OFFSETS[n]}" for n in ("taken", "allowed"))
    definitions = f"""
declare i32 @sched_getcpu()

; Sleeping workers off the caller's processor.
define internal void @keep_off(ptr %team) {{
entry:
  {taken}
  {allowed}
  %parts.place = getelementptr i8, ptr %team, i64 {OFFSETS["parts"]}
  %parts = load i64, ptr %parts.place
  %mask = alloca [{MASK_BYTES // 8} x i64]
  %here = call i32 @sched_getcpu()
  %known = icmp ult i32 %here, {MASK_BYTES * 8}
  br i1 %known, label %worker, label %out
worker:
  %part = phi i64 [1, %entry], [%next, %passed]
  %offset = mul i64 %part, {LINE}
  %line = getelementptr i8, ptr %taken, i64 %offset
  %processor.place = getelementptr i8, ptr %line, i64 {PROCESSOR}
  %processor = load atomic i32, ptr %processor.place acquire, align 4
  %shared = icmp eq i32 %processor, %here
  br i1 %shared, label %move, label %passed
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %allowed, i64 {MASK_BYTES}, i1 false)
  %here64 = zext i32 %here to i64
  %word = lshr i64 %here64, 6
  %low = and i64 %here64, 63
  %bit = shl i64 1, %low
  %others = xor i64 %bit, -1
  %word.place = getelementptr i64, ptr %mask, i64 %word
  %before = load i64, ptr %word.place
  %after = and i64 %before, %others
  store i64 %after, ptr %word.place
  %thread.place = getelementptr i8, ptr %line, i64 {THREAD}
  %thread = load atomic i64, ptr %thread.place acquire, align 8
  ; 0 of a worker that has not begun or has left: to the kernel that means the caller.
  %there = icmp ne i64 %thread, 0
  br i1 %there, label %set.mask, label %passed
set.mask:
  ; Refused, and nothing changed, when no processor is left.
  %set = call i64 (i64, ...) @syscall(i64 {_SET_AFFINITY[machine]}, i64 %thread, i64 {MASK_BYTES}, ptr %mask)
  br label %passed
passed:
  %next = add i64 %part, 1
  %more = icmp slt i64 %next, %parts
  br i1 %more, label %worker, label %out
out:
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"""
    line = f"""%own.offset = mul i64 %part, {LINE}
  %own.line = getelementptr i8, ptr %taken, i64 %own.offset
  %own.processor = getelementptr i8, ptr %own.line, i64 {PROCESSOR}
  %own.thread = getelementptr i8, ptr %own.line, i64 {THREAD}
  store atomic i32 -1, ptr %own.processor release, align 4
  %number = call i64 (i64, ...) @syscall(i64 {_THREAD_NUMBER[machine]})
  store atomic i64 %number, ptr %own.thread release, align 8"""
    asleep = """%place = call i32 @sched_getcpu()
  store atomic i32 %place, ptr %own.processor release, align 4"""
    # Its number may be another thread's soon.
    left = "store atomic i64 0, ptr %own.thread release, align 8"
    return definitions, "call void @keep_off(ptr %team)", line, asleep, left


def _word(name: str) -> str:
    return f"%{name} = getelementptr i8, ptr %team, i64 {OFFSETS[name]}"


_WORDS = "\n  ".join(map(_word, OFFSETS))


def declarations() -> str:
    """What the functions below call, and the clock."""
    return f"""
{_pause()[0]}
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
{_moving()[0]}

define internal i64 @now() {{
  %time = alloca [2 x i64]
  %got = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %place = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %place
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}}
"""


def steps_ir(is_timed: bool = False) -> str:
    """How one thread goes through the steps of a job. With ``is_timed`` it calls ``note(row, n)`` after n steps."""
    pause = _pause()[1]
    row = ", ptr %row" if is_timed else ""
    note = "call void @note(ptr %row, i64 %next)" if is_timed else ""
    return f"""
; All parts of all steps by this thread.
define internal void @serial(ptr %functions, ptr %blocks, i64 %count{row}) {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %out
step:
  %i = phi i64 [0, %entry], [%next, %step]
  %fp = getelementptr ptr, ptr %functions, i64 %i
  %f = load ptr, ptr %fp
  %bp = getelementptr ptr, ptr %blocks, i64 %i
  %b = load ptr, ptr %bp
  call void %f(ptr %b, i64 0, i64 1)
  %next = add i64 %i, 1
  {note}
  %last = icmp eq i64 %next, %count
  br i1 %last, label %out, label %step
out:
  ret void
}}

; Steps one after the other by this thread, whose own part is ``own``; after each, everybody waits until all is done.
define internal void @steps(ptr %team, ptr %functions, ptr %blocks, i64 %count, i64 %base, i64 %own, i64 %parts{row}) {{
entry:
  {_word("arrived")}
  {_word("taken")}
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %out
step:
  %i = phi i64 [0, %entry], [%next, %passed]
  %before = phi i64 [%base, %entry], [%goal, %passed]
  %goal = add i64 %before, %parts
  %fp = getelementptr ptr, ptr %functions, i64 %i
  %bp = getelementptr ptr, ptr %blocks, i64 %i
  br label %part
part: ; its own part first, then the others in turn
  %n = phi i64 [0, %step], [%n.next, %part.done]
  %shifted = add i64 %own, %n
  %over = icmp sge i64 %shifted, %parts
  %wrapped = sub i64 %shifted, %parts
  %p = select i1 %over, i64 %wrapped, i64 %shifted
  %offset = mul i64 %p, {LINE}
  %word = getelementptr i8, ptr %taken, i64 %offset
  %had = load atomic i64, ptr %word acquire, align 8
  %free = icmp slt i64 %had, %goal
  br i1 %free, label %take, label %part.done
take:
  %raised = cmpxchg ptr %word, i64 %had, i64 %goal seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %raised, 1
  br i1 %mine, label %work, label %part.done
work:
  %f = load ptr, ptr %fp
  %b = load ptr, ptr %bp
  call void %f(ptr %b, i64 %p, i64 %parts)
  %done.before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %part.done
part.done:
  %n.next = add i64 %n, 1
  %more.parts = icmp slt i64 %n.next, %parts
  br i1 %more.parts, label %part, label %check
check:
  %spins = phi i64 [0, %part.done], [%more, %again]
  %now = load atomic i64, ptr %arrived acquire, align 8
  %done = icmp sge i64 %now, %goal
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
  %next = add i64 %i, 1
  {note}
  %last = icmp eq i64 %next, %count
  br i1 %last, label %out, label %step
out:
  ret void
}}
"""


def run_ir(name: str, is_timed: bool = False) -> str:
    """``void name(team, functions, blocks, count)``: the caller's side of a job.

    With ``is_timed`` it calls ``begin_row(blocks)``, whose result it notes times in, and in the end ``end_row(blocks,
    count)``.
    """
    pause, wake, keep_off = _pause()[1], _sleep()[1], _moving()[1]
    row = row_begin = note = end = ""
    if is_timed:
        row = ", ptr %row"
        row_begin = "%row = call ptr @begin_row(ptr %blocks.given)"
        note = "call void @note(ptr %row, i64 0)"
        end = "call void @end_row(ptr %blocks.given, i64 %count.given)"
    return f"""
define void @{name}(ptr %team, ptr %functions.given, ptr %blocks.given, i64 %count.given) {{
entry:
  {_WORDS}
  {row_begin}
  %size = load i64, ptr %parts
  %single = icmp eq i64 %size, 1
  br i1 %single, label %alone, label %claim
claim:
  %claimed = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue {{ i32, i1 }} %claimed, 1
  br i1 %mine, label %publish, label %alone
alone: ; also when the team has another job
  {note}
  call void @serial(ptr %functions.given, ptr %blocks.given, i64 %count.given{row})
  {end}
  ret void
publish:
  %began = call i64 @now()
  %any = icmp sgt i64 %count.given, 0
  br i1 %any, label %look, label %announce
look:
  %first = load i64, ptr %blocks.given
  br label %announce
announce:
  %key = phi i64 [0, %publish], [%first, %look]
  %line = lshr i64 %key, 6
  %pair = and i64 %line, 15
  %pair.offset = mul i64 %pair, 16
  %key.place = getelementptr i8, ptr %known, i64 %pair.offset
  %time.place = getelementptr i8, ptr %key.place, i64 8
  %start = load atomic i64, ptr %arrived seq_cst, align 8
  store ptr %functions.given, ptr %functions
  store ptr %blocks.given, ptr %blocks
  store i64 %count.given, ptr %count
  store i64 %start, ptr %base
  store atomic i32 1, ptr %open seq_cst, align 4
  %old = atomicrmw add ptr %generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp sgt i32 %asleep, 0
  br i1 %some, label %weigh, label %go
weigh:
  %key.known = load i64, ptr %key.place
  %time.known = load i64, ptr %time.place
  %end.known = load i64, ptr %ended
  %same = icmp eq i64 %key.known, %key
  %short = icmp slt i64 %time.known, {WAKE_WORTH}
  %pause = sub i64 %began, %end.known
  %seldom = icmp sgt i64 %pause, {SPIN_LONG}
  %small = and i1 %same, %short
  %needless = and i1 %small, %seldom
  %is.job = icmp ne i64 %key, 0
  %leave.them = and i1 %needless, %is.job
  br i1 %leave.them, label %go, label %wake
wake:
  {keep_off}
  {wake}
  br label %go
go:
  {note}
  call void @steps(ptr %team, ptr %functions.given, ptr %blocks.given, i64 %count.given, i64 %start, i64 0,
    i64 %size{row})
  {end}
  store atomic i32 0, ptr %open seq_cst, align 4
  br label %leaving
leaving: ; workers see at once that all is done
  %turns = phi i64 [0, %go], [%turned, %left.again]
  %others = load atomic i32, ptr %inside seq_cst, align 4
  %empty = icmp eq i32 %others, 0
  br i1 %empty, label %over, label %wait
wait:
  {pause}
  %turned = add i64 %turns, 1
  %slow = icmp sgt i64 %turned, {SPINS_BEFORE_YIELD}
  br i1 %slow, label %give, label %left.again
give:
  %given = call i32 @sched_yield()
  br label %left.again
left.again:
  br label %leaving
over:
  %end = call i64 @now()
  %took = sub i64 %end, %began
  store i64 %key, ptr %key.place
  store i64 %took, ptr %time.place
  store i64 %end, ptr %ended
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret void
}}
"""


def team_ir() -> str:
    """LLVM IR of ``gpujit_team_run(team, functions, blocks, count)``, ``gpujit_team_work(team, part)`` and
    ``gpujit_team_call(team, function, block, arrays)``: one step whose block holds, in its first ``arrays`` words, the
    addresses of NumPy array objects, which are replaced by those of their data.
    """
    return declarations() + steps_ir() + run_ir("gpujit_team_run") + _call_ir() + _work_ir()


def _call_ir() -> str:
    return f"""
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
"""


def _work_ir() -> str:
    wait, pause = _sleep()[0], _pause()[1]
    _, _, begin, asleep, left = _moving()
    return f"""
define void @gpujit_team_work(ptr %team, i64 %part) {{
entry:
  {_WORDS}
  %size = load i64, ptr %parts
  {begin}
  br label %idle
idle:
  %seen = phi i32 [0, %entry], [%current, %leave]
  %patience = phi i64 [{SPIN_LONG}, %entry], [%patience.next, %leave]
  %seen64 = zext i32 %seen to i64
  %start = call i64 @now()
  br label %look
look:
  %spins = phi i64 [0, %idle], [%more, %pause], [%more, %yield], [0, %sleep]
  %current = load atomic i32, ptr %generation acquire, align 4
  %leaving = load atomic i32, ptr %stop acquire, align 4
  %ends = icmp ne i32 %leaving, 0
  br i1 %ends, label %out, label %compare
compare:
  %new = icmp ne i32 %current, %seen
  br i1 %new, label %join, label %wait
wait:
  %more = add i64 %spins, 1
  %turn = and i64 %more, {SPINS_A_LOOK - 1}
  %due = icmp eq i64 %turn, 0
  br i1 %due, label %tick, label %pause
tick:
  %time = call i64 @now()
  %waited = sub i64 %time, %start
  %long = icmp sgt i64 %waited, %patience
  br i1 %long, label %sleep, label %still
still:
  %polite = icmp sgt i64 %waited, {SPIN_SHORT}
  br i1 %polite, label %yield, label %pause
yield:
  %yielded = call i32 @sched_yield()
  br label %look
pause:
  {pause}
  br label %look
sleep:
  {asleep}
  %up = atomicrmw add ptr %sleepers, i32 1 seq_cst
  {wait}
  %down = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
join:
  %came = call i64 @now()
  %gap = sub i64 %came, %start
  %soon = icmp slt i64 %gap, {SPIN_LONG}
  %patience.next = select i1 %soon, i64 {SPIN_LONG}, i64 {SPIN_SHORT}
  %in = atomicrmw add ptr %inside, i32 1 seq_cst
  %opened = load atomic i32, ptr %open seq_cst, align 4
  %is.open = icmp ne i32 %opened, 0
  br i1 %is.open, label %work, label %leave
work:
  %job.functions = load ptr, ptr %functions
  %job.blocks = load ptr, ptr %blocks
  %job.count = load i64, ptr %count
  %job.base = load i64, ptr %base
  call void @steps(ptr %team, ptr %job.functions, ptr %job.blocks, i64 %job.count, i64 %job.base, i64 %part, i64 %size)
  br label %leave
leave:
  %out.before = atomicrmw sub ptr %inside, i32 1 seq_cst
  br label %idle
out:
  {left}
  ret void
}}
"""
