-- confirm: a job that waits for a person joins the line again with one more batch of iterations.
--
-- Arguments  job_id, by
-- Answers    the job as it is now; refused: no_job, wrong_state
-- Events     queued. Audit "confirm"
-- flags allow-oom
-- include lib/people.lua

local row = rows.find(arguments.job_id)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
end
if row.state ~= 'confirming' then
  return people.wrong_state(row)
end
lease.stop_confirming(row)
row.attempts, row.message = nil, nil
row.start_by, row.steady_start_by, row.overdue_message = nil, nil, nil
if row.iterations_granted and row.iterations_batch then
  row.iterations_granted =
    math.min(row.iterations_granted + row.iterations_batch, row.iterations_max or math.huge)
end
line.join(row)
step.audit(arguments.by, 'confirm', row.id, { iterations_granted = row.iterations_granted or cjson.null })
hand_over()
return people.answer({ row })
