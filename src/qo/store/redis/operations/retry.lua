-- retry: a failed job joins the line again, as if it had never been tried.
--
-- Arguments  job_id, by
-- Answers    the job as it is now; refused: no_job, wrong_state, unique_taken, phase_waits
-- Events     queued. Audit "retry"
-- flags allow-oom
-- include lib/people.lua

local row = rows.find(arguments.job_id)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
end
if row.state ~= 'failed' then
  return people.wrong_state(row)
end
if row.unique_key then
  local other = call('HGET', key('unique'), row.unique_key)
  if other then
    return step.refuse('unique_taken', { id = row.id, state = row.state, by = rows.get(other).id, key = row.unique_key })
  end
end
if row.phase and row.phase > 1 then
  local before = call('HGET', key('phases:', row.parent), row.phase - 1)
  if not before or rows.get(before).state ~= 'succeeded' then
    return step.refuse('phase_waits', { id = row.id, state = row.state, phase = row.phase - 1, parent = row.parent })
  end
end
if row.unique_key then
  later('HSET', key('unique'), row.unique_key, row.number)
end
if row.parent then
  call('HINCRBY', key('unfinished'), row.parent, 1)
  later('ZREM', key('endings:', row.parent), row.number)
end
later('ZREM', key('finished'), row.number)
row.attempts, row.error, row.stage, row.progress, row.message = nil, nil, nil, nil, nil
row.finished_at, row.worker, row.token = nil, nil, nil
row.start_by, row.steady_start_by, row.overdue_message = nil, nil, nil
if row.user and not row.quota_day then
  row.quota_day = quota.day_of(step.now)
  quota.charge(row.user, row.quota_day, 1)
  users.note_idle(row.user)
end
suspects.suspect_again(row)
line.join(row)
step.audit(arguments.by, 'retry', row.id, {})
hand_over()
return people.answer({ row })
