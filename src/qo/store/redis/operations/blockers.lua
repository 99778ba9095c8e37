-- blockers: what stands between a job and its start.
--
-- Arguments  job_id
-- Answers    the job, its groups without room for it, and of those before it that slots are kept for, their groups without
--            room; the groups in which a slot is kept for it; the phase it waits for, whether a live worker handles its
--            task, the worker that was heard of last, and when it has to start; the suspicion of a job in line; refused:
--            no_job
-- flags no-writes
-- include lib/status.lua
-- include lib/answer.lua
-- include lib/workers.lua

local row = rows.find(arguments.job_id)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
end

local asking = kept.now()
local full, kept_for, turn = {}, {}, {}

local function without_room(turn_before)
  local names = {}
  for _, group in ipairs(groups.of(turn_before.names)) do
    if not groups.has_room(group) then
      names[#names + 1] = group.name
    end
  end
  return names
end

for _, group in ipairs(groups.of(tasks.groups_of(row))) do
  local first = row.state == 'queued' and asking[group.name] and asking[group.name][1]
  if first and first.waiting == row then
    turn[#turn + 1] = group.name
  end
  if not groups.has_room(group) then
    full[#full + 1] = status.of(group.name, asking, true)
  elseif first and first.key < row.key and group.active + 1 >= group.limit then
    full[#full + 1] = status.of(group.name, asking, true)
    kept_for[#kept_for + 1] = { first.name, without_room(first) }
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
local start_by
if not row.started_at and not ENDED[row.state] then
  start_by = row.steady_start_by and row.steady_start_by + step.counter('fallen_ms') or row.start_by
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
  jobs = { answer.job(row) }, groups = full, kept_for = kept_for, turn = turn, waits_for = waits_for, waits_for_state = waits_for_state,
  has_worker = has_worker, worker = heard_last and heard_last.name, heard_at = heard_last and heard_last.heard_at,
  start_by = start_by, suspicion = row.state == 'queued' and row.suspicion or nil,
})
