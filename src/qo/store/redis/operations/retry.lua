-- retry: a failed job joins the line again, as if it had never been tried.
--
-- Arguments  job_id, by
-- Answers    the job as it is now; refused: no_job, wrong_state, unique_taken
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
  later('HSET', key('unique'), row.unique_key, row.number)
end
if row.parent then
  call('HINCRBY', key('unfinished'), row.parent, 1)
  later('ZREM', key('endings:', row.parent), row.number)
end
later('ZREM', key('finished'), row.number)
row.attempts, row.error, row.stage, row.progress, row.message = nil, nil, nil, nil, nil
row.finished_at, row.worker, row.token = nil, nil, nil
suspects.suspect_again(row)
line.join(row)
step.audit(arguments.by, 'retry', row.id, {})
hand_over()
return people.answer({ row })
