-- line: jobs in line in their order, with only what they compete for; a part of them.
--
-- Arguments  from, limit
-- Answers    id, task, tier and groups of each; whether there may be more before the limit
--
-- A call answers a part of them, so that none takes long: fewer where jobs have many groups.
-- flags no-writes
-- include lib/groups.lua

local looks = 4000 -- how many are left in this call, as a claim counts them
local numbers = call('ZRANGE', key('line'), arguments.from, arguments.from + arguments.limit - 1)
rows.load(numbers)
local found = {}
for i, number in ipairs(numbers) do
  local row = rows.get(number)
  local names = tasks.groups_of(row)
  found[i] = { id = row.id, task = row.task, tier = row.tier, groups = names }
  looks = looks - groups.looks(names)
  if looks <= 0 then
    break
  end
end
return step.answer({ line = found, more = #found < #numbers or #numbers == arguments.limit })
