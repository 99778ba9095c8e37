-- counts: how many jobs there are in each state.
--
-- Answers    the number of each state that has jobs
-- flags no-writes
-- include lib/step.lua

local counts = {}
for _, state in ipairs(STATES) do
  local count = step.counter('state:' .. state)
  counts[state] = count > 0 and count or nil
end
return step.answer({ counts = counts })
