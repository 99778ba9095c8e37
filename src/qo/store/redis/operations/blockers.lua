-- blockers: what stands between a job and its start.
--
-- Arguments  job_id
-- Answers    the job, its groups without room, the phase it waits for, whether a live worker handles its task, and the
--            worker that was heard of last, the suspicion of a job in line; refused: no_job
-- flags no-writes
-- include lib/status.lua
-- include lib/answer.lua
-- include lib/workers.lua

local row = rows.find(arguments.job_id)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
end
local full = {}
for _, group in ipairs(groups.of(tasks.groups_of(row))) do
  if not groups.has_room(group) then
    full[#full + 1] = status.of(group.name, true)
  end
end
local waits_for, waits_for_state
if row.state == 'waiting' and row.phase then
  local before = call('HGET', key('phases:', row.parent), row.phase - 1)
  local state = before and rows.get(before).state or nil
  if state ~= 'succeeded' then
    waits_for, waits_for_state = row.phase - 1, state
  end
end
local is_held = row.state == 'starting' or row.state == 'running'
local has_worker, heard_last = false, nil
for _, worker in ipairs(workers.all()) do
  local takes = workers.takes(worker, row.task)
  has_worker = has_worker or (takes and worker.expires_at > step.now)
  local counts = takes
  if is_held then
    counts = worker.name == row.worker
  end
  if counts and (not heard_last or worker.heard_at > heard_last.heard_at) then
    heard_last = worker
  end
end
return answer.send({
  jobs = { answer.job(row) }, groups = full, waits_for = waits_for, waits_for_state = waits_for_state,
  suspicion = row.state == 'queued' and row.suspicion or nil, has_worker = has_worker, worker = heard_last and heard_last.name, heard_at = heard_last and heard_last.heard_at,
})
