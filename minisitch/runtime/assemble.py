"""Turn a lowered program into an executable: lay out memory, and make the steps.

In:  ``Stages`` and a target. Out: an ``Executable``.
"""

from ..errors import needs
from ..lower import Stages
from ..stitch.body import extract
from ..strategies.regions import runs_in_numpy
from .cuda.launch import CudaExecutable
from .executable import Executable, index_checks, view_chain
from .memory import MemoryPlan
from .steps import CopyStep, KernelStep, Step, build_kernels, library_step, pipeline_step, program_step
from .target import refuse_other_machine


def assemble(stages: Stages, target: str) -> Executable:
    """Lay out memory and make the steps. Raises DeviceError as ``refuse_other_machine`` does."""
    needs("assemble(stages, 'cpu')", (stages, Stages), (target, str))
    refuse_other_machine(stages.device, target)
    launch = build_kernels(stages, target)
    layout = MemoryPlan(stages)
    steps: list[Step] = []
    kernels = iter(zip(stages.bodies, stages.digests, stages.kernels, strict=True))
    flows = iter(stages.flows)
    for pattern in stages.plan.patterns:
        if runs_in_numpy(stages.plan):
            whole = extract(stages.graph, pattern)
            steps.append(program_step(whole.graph, tuple(layout.value[v] for v in (*whole.inputs, *whole.outputs))))
            continue
        if pattern.kind == "library":
            node = stages.graph[pattern.members[0]]
            chains = [view_chain(stages.graph, a) for a in node.args]
            slots = (*(layout.value[c[0].id] for c in chains), layout.value[node.id])
            steps.append(library_step(node, chains, slots, target))
            continue
        if pattern.kind == "pipeline":
            flow = next(flows)
            memory = (*flow.body.inputs, *flow.body.outputs)
            steps.append(pipeline_step(flow.source, tuple(layout.value[v] for v in memory), target))
            continue
        body, key, kernel = next(kernels)
        memory = (*body.inputs, *body.outputs)
        slots = (*(layout.value[v] for v in memory), *layout.scratch.get(len(steps), ()))
        steps.append(KernelStep(kernel.name, launch[key], slots, body.offsets))
    steps += [CopyStep((source, out)) for source, out in layout.copies]
    made = CudaExecutable if target == "cuda" else Executable
    return made(stages, target, tuple(layout.slots), tuple(steps), layout.workspace, layout.residents, index_checks(stages.graph))
