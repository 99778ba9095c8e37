-- payload: a job's payload and checkpoint.
--
-- Arguments  job_id
-- Answers    where they are in the reply; refused: no_job
-- flags no-writes
-- include lib/answer.lua

local number = call('HGET', key('ids'), arguments.job_id)
if not number then
  return step.refuse('no_job', { id = arguments.job_id })
end
local checkpoint = call('HGET', key('checkpoints'), number)
return answer.send({
  payload = answer.blob(call('HGET', key('payloads'), number)), checkpoint = checkpoint and answer.blob(checkpoint) or nil,
})
