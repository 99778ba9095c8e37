-- fail_unconfirmed: jobs that nobody confirmed in time fail, longest waiting first.
--
-- Arguments  after_ms, error
-- Answers    the jobs; whether there are more
-- Events     failed
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua

local found, more = rows.due('confirming', step.now - arguments.after_ms)
local ids = {}
for i, row in ipairs(found) do
  lease.end_job(row, 'failed', arguments.error)
  ids[i] = row.id
end
hand_over()
return step.answer({ ids = ids, more = more })
