"""The views of an archive: what sqlite-utils, Datasette and other programs read (docs/archive.md).

kbevolve itself never reads them. They are part of a released migration: another text is a new migration.
"""

#: The precision that a run asks for.
_PRECISION = "coalesce(json_extract(runs.settings, '$.evaluation.precision'), 'fp32')"
_CONDITIONS = f"problem = runs.problem and device = runs.device and precision = {_PRECISION}"


def _first(kernel: str) -> str:
    """Number of the evaluation of a kernel that counts: the first one under the conditions of `runs`."""
    return f"(select min(number) from evaluations as earliest where earliest.kernel = {kernel} and {_CONDITIONS})"


#: One row for each attempt at a child.
_ATTEMPTS = f"""
select births.run, runs.problem_name as problem, births.generation, births.island, births.slot,
    lower(births.operator) as operator, lower(births.state) as state, births.kernel,
    json_extract(births.parents, '$[0]') as parent, ideas.title as idea, ideas.technique, births.note,
    lower(judged.verdict) as verdict, judged.message, judged.speedup, judged.speedup_low, judged.speedup_high,
    judged.time_ms, judged.reference_ms, births.model, births.prompt_tokens, births.completion_tokens, births.at
from births
join runs on runs.id = births.run
left join ideas on ideas.id = births.idea
left join evaluations as judged on judged.number = {_first("births.kernel")}
"""

#: One row for each parent of each kernel: the edges of the lineage.
_LINEAGE = f"""
select births.run, births.kernel, edge.value as parent, edge.key as position, births.generation, births.island,
    lower(births.operator) as operator, ideas.title as idea, ideas.technique, child.speedup,
    before.speedup as parent_speedup, child.speedup / before.speedup as gain
from births
join runs on runs.id = births.run
join json_each(births.parents) as edge
left join ideas on ideas.id = births.idea
left join evaluations as child on child.number = {_first("births.kernel")}
left join evaluations as before on before.number = {_first("edge.value")}
where births.state = 'CREATED' and births.kernel is not null
"""

#: One row for each run that has a correct kernel: what it publishes, as `archive.champion` and `RunSummary` say it.
#: Failures are kernels that passed at first and failed when they were judged again, or whose binary did.
_BEST_KERNELS = f"""
with failures(kernel, problem, device, precision) as (
    select kernel, problem, device, precision from evaluations as later
    where verdict <> 'CORRECT' and 'CORRECT' = (select verdict from evaluations as earliest
        where (earliest.kernel, earliest.problem, earliest.device, earliest.precision)
            = (later.kernel, later.problem, later.device, later.precision)
        order by number limit 1)
    union select follower.kernel, judged.problem, judged.device, judged.precision from evaluations as follower
    join evaluations as judged on judged.kernel = follower.identical_to
    where follower.identical_to > '' and judged.verdict <> 'CORRECT'),
decisive as (
    select confirmations.*, rival is not null and comparison = 'FASTER' as faster
    from confirmations join runs on runs.id = confirmations.run
    where (purpose = 'final' or comparison = 'FASTER')
        and (confirmations.kernel, runs.problem, runs.device, {_PRECISION}) not in failures),
newest as (
    select run, number, purpose, generation from decisive
    where number in (select max(number) from decisive group by run)),
met as (
    select one.*, exists (select 1 from decisive as other where other.purpose = 'final' and other.run = one.run
        and other.generation = one.generation and other.rival = one.kernel) as defended
    from decisive as one join newest on newest.run = one.run
    where one.number = newest.number
        or (newest.purpose = 'final' and one.purpose = 'final' and one.generation = newest.generation)),
champions as (
    select run, number as confirmation, row_number() over (partition by run order by faster desc,
        case when faster then ratio_low else defended end desc, case when faster then 0 else speedup_low end desc,
        number) as place
    from met),
correct as (
    select births.run, judged.*, max(births.operator = 'SEED' and births.note = 'the reference itself')
        over (partition by births.run, judged.kernel) as is_reference
    from births join runs on runs.id = births.run
    join evaluations as judged on judged.number = {_first("births.kernel")}
    where judged.verdict = 'CORRECT'
        and (births.kernel, judged.problem, judged.device, judged.precision) not in failures),
fittest as (
    select run, number as evaluation, row_number() over (partition by run order by is_reference,
        speedup_low desc, identical_to is not null, kernel) as place
    from correct)
select runs.id as run, runs.problem_name as problem, runs.device, {_PRECISION} as precision, runs.created,
    kernels.id as kernel, lower(kernels.backend) as backend, confirmed.number is not null as confirmed,
    coalesce(confirmed.speedup, judged.speedup) as speedup,
    coalesce(confirmed.speedup_low, judged.speedup_low) as speedup_low,
    coalesce(confirmed.speedup_high, judged.speedup_high) as speedup_high,
    coalesce(confirmed.time_ms, judged.time_ms) as time_ms,
    coalesce(confirmed.reference_ms, judged.reference_ms) as reference_ms
from runs
left join champions on champions.run = runs.id and champions.place = 1
left join confirmations as confirmed on confirmed.number = champions.confirmation
left join fittest on fittest.run = runs.id and fittest.place = 1
left join evaluations as judged on judged.number = fittest.evaluation
join kernels on kernels.id = coalesce(confirmed.kernel, judged.kernel)
"""

#: One row for each timed call of each evaluation.
_TIMED_CALLS = """
select evaluations.number as evaluation, evaluations.kernel, evaluations.device, blocks.role, blocks.round,
    call.key as call, call.value as time_ms
from blocks join evaluations on evaluations.number = blocks.evaluation join json_each(blocks.times_ms) as call
"""

#: Name -> what it selects.
VIEWS = {
    "best_kernels": _BEST_KERNELS,
    "attempts": _ATTEMPTS,
    "lineage": _LINEAGE,
    "timed_calls": _TIMED_CALLS,
}
