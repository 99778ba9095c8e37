-- job: one job with its position.
--
-- Arguments  job_id
-- Answers    the job; refused: no_job
-- flags no-writes
-- include lib/answer.lua

local row = rows.find(arguments.job_id)
if not row then
  return step.refuse('no_job', { id = arguments.job_id })
end
return answer.send({ jobs = { answer.job(row) } })
