-- line: jobs in line in their order, with only what they compete for; a part of them.
--
-- Arguments  from, limit
-- Answers    id, task, tier and groups of each
-- flags no-writes
-- include lib/rows.lua

local numbers = call('ZRANGE', key('line'), arguments.from, arguments.from + arguments.limit - 1)
rows.load(numbers)
local found = {}
for i, number in ipairs(numbers) do
  local row = rows.get(number)
  found[i] = { id = row.id, task = row.task, tier = row.tier, groups = tasks.groups_of(row) }
end
return step.answer({ line = found })
