"""Jobs: submit, list, get, why, confirm, cancel, retry."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from qo.errors import JobNotFound, SubmitRefused
from qo.job import Job
from qo.new_job import New
from qo.policy.why import Why
from qo.queue.queue import Admitted
from qo.service.access.refused import Refused
from qo.service.operations import IDEMPOTENCY_KEY, Answer, Call, May, Operation
from qo.service.problems import Problem, problem_of
from qo.service.reading import MOST_BYTES, MOST_BYTES_OF_A_LIST, has_body, read_json
from qo.service.routes.watch import watch_urls
from qo.service.shapes import REFERENCE, Cancel, JobAnswer, JobPage, JobsQuery, Page, submitted, whole
from qo.service.submitting import MOST_OF_A_LIST, NewJobs, check_known, new_job, tier_of_caller
from qo.tracing import submitting_in

_EACH = {"anyOf": [{"$ref": REFERENCE.format(name=kind.__name__)} for kind in (JobAnswer, Problem)]}
KnownJobOrList = JobAnswer | Annotated[list[Any], Meta(extra_json_schema={"items": _EACH})]
"""A union of two structs in a list is more than msgspec can describe by itself."""


async def submit(call: Call) -> Answer:
    body = await read_json(call.request, most_bytes=MOST_BYTES_OF_A_LIST, most_unless_list=MOST_BYTES)
    if isinstance(body, list):
        return Answer(await _submit_list(call, body), status=200)
    new = new_job(body, call, tier=await tier_of_caller(call))
    with submitting_in(call.request.headers.get("traceparent")):
        admitted = await call.queue.admit(new)
    await check_known(new, admitted, call)
    (url,) = await watch_urls(call, [admitted.job])
    shown = submitted(admitted.job, call.caller, watch_url=url)
    return Answer(shown, status=200 if admitted.known else 201)


async def _submit_list(call: Call, body: list[Any]) -> list[Any]:
    if len(body) > MOST_OF_A_LIST:
        detail = f"body has {len(body)} jobs; submit at most {MOST_OF_A_LIST} at once."
        raise Refused(422, "Value not allowed", detail, field="body")
    tier = await tier_of_caller(call)
    wanted: list[New | Problem] = []
    for index, item in enumerate(body):
        try:
            wanted.append(new_job(item, call, tier=tier, index=index))
        except (Refused, SubmitRefused) as error:
            wanted.append(problem_of(error))
    with submitting_in(call.request.headers.get("traceparent")):
        answers = iter(await call.queue.admit_each([each for each in wanted if isinstance(each, New)]))
    found = [each if isinstance(each, Problem) else await _job_or_problem(each, next(answers), call) for each in wanted]
    urls = iter(await watch_urls(call, [each for each in found if isinstance(each, Job)]))
    return [
        each if isinstance(each, Problem) else submitted(each, call.caller, watch_url=next(urls), in_list=True)
        for each in found
    ]


async def _job_or_problem(new: New, answer: Admitted | SubmitRefused, call: Call) -> Job | Problem:
    if isinstance(answer, SubmitRefused):
        return problem_of(answer)
    try:
        await check_known(new, answer, call)
    except Refused as error:
        return problem_of(error)
    return answer.job


async def list_jobs(call: Call) -> Page:
    query = call.query(JobsQuery)
    wanted = query.wanted()
    if not call.sees_all:
        if query.user not in (None, call.caller.user):
            return Page(items=[])
        wanted["user"] = call.caller.user
    page = await call.queue.jobs_page(limit=query.limit, after=query.after, newest_first=True, **wanted)
    return Page(items=await call.rows(page.jobs), next=page.next)


async def get(call: Call) -> dict[str, Any]:
    try:
        job = await call.queue.get(call.named["id"])
    except JobNotFound:
        if call.shared.history is None:
            raise
        found = await call.shared.history.job(call.named["id"])
        call.check_own(found.job)
        return whole(found.job, call.caller, data=found.payload, with_data=True) | {"watch_url": None}
    call.check_own(job)
    payload, _ = await call.queue.store_here.payload(job.id)
    shown = whole(job, call.caller, data=msgspec.json.decode(payload), with_data=True)
    (url,) = await watch_urls(call, [job])
    return shown | {"watch_url": url}


async def why(call: Call) -> Why:
    return await call.queue.why(await call.own_job_id(), for_user=None if call.sees_all else call.caller.user)


async def confirm(call: Call) -> dict[str, Any]:
    return whole(await call.queue.confirm(await call.own_job_id(), by=call.by), call.caller)


async def cancel(call: Call) -> dict[str, Any]:
    job_id = await call.own_job_id()
    message = None
    if has_body(call.request):
        message = (await call.body(Cancel)).message
    return whole(await call.queue.cancel(job_id, message=message, by=call.by), call.caller)


async def retry(call: Call) -> dict[str, Any]:
    return whole(await call.queue.retry(await call.own_job_id(), by=call.by), call.caller)


OPERATIONS = (
    Operation(
        "POST",
        "/api/jobs",
        May.SUBMITTER,
        submit,
        "Submit a job, or a list of jobs.",
        NewJobs,
        example={"task": "render", "data": {"scene": 7}, "user": "ann", "priority": "high"},
        answers=JobAnswer,
        status=201,
        others={200: KnownJobOrList},
        headers={IDEMPOTENCY_KEY: "A repeat of the request with the same value gets the same jobs."},
    ),
    Operation(
        "GET",
        "/api/jobs",
        May.OWNER,
        list_jobs,
        "List jobs: those in line first, then the newest.",
        query=JobsQuery,
        answers=JobPage,
    ),
    Operation("GET", "/api/jobs/{id}", May.OWNER, get, "Get a job with its data and its result.", answers=JobAnswer),
    Operation("GET", "/api/jobs/{id}/why", May.OWNER, why, "Say why a job is not running.", answers=Why),
    Operation(
        "POST",
        "/api/jobs/{id}/confirm",
        May.OWNER_CHANGES,
        confirm,
        "Let a job that asked for it go on.",
        answers=JobAnswer,
    ),
    Operation(
        "POST",
        "/api/jobs/{id}/cancel",
        May.OWNER_CHANGES,
        cancel,
        "Cancel a job.",
        Cancel,
        example={"message": "The order was withdrawn."},
        answers=JobAnswer,
        needs_body=False,
    ),
    Operation(
        "POST", "/api/jobs/{id}/retry", May.OWNER_CHANGES, retry, "Put a failed job in line again.", answers=JobAnswer
    ),
)
