-- fail_unconfirmed: jobs that nobody confirmed in time fail, longest waiting first.
--
-- Arguments  after_ms, error
-- Answers    the jobs; whether there are more
-- Events     failed
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua

local portion = step.bounds.portion
local numbers = call('ZRANGEBYSCORE', key('confirming'), '-inf', step.now - arguments.after_ms, 'LIMIT', 0, portion + 1)
local more = #numbers > portion
numbers[portion + 1] = nil
rows.load(numbers)
local ids = {}
for i, number in ipairs(numbers) do
  local row = rows.get(number)
  lease.end_job(row, 'failed', arguments.error)
  ids[i] = row.id
end
hand_over()
return step.answer({ ids = ids, more = more })
