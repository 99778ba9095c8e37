-- parent: a parent and its jobs, its phases by number, then the others by submission.
--
-- Arguments  parent
-- Answers    priority and jobs; refused: no_parent
-- flags no-writes
-- include lib/answer.lua

local priority = call('HGET', key('parents'), arguments.parent)
if not priority then
  return step.refuse('no_parent')
end
local numbers = call('ZRANGE', key('children:', arguments.parent), 0, -1)
rows.load(numbers)
local jobs = {}
for i, number in ipairs(numbers) do
  jobs[i] = answer.job(rows.get(number))
end
return answer.send({ priority = tonumber(priority), jobs = jobs })
