-- line: jobs in line in their order, with only what they compete for; a part of them.
--
-- Arguments  last (the order key behind which to begin), limit
-- Answers    id, task, tier, groups, passes, turn and suspicion of each; whether that was the end, else the key of the last;
--            how many are in line
--            in all
--
-- A call answers a part of them, so that none takes long: fewer where jobs have many groups.
-- flags no-writes
-- include lib/groups.lua

local looks = 4000 -- how many are left in this call, as a claim counts them
local first, limit = arguments.last and below(arguments.last) or '-inf', arguments.limit
local numbers = limit == 0 and {} or call('ZRANGEBYSCORE', key('line'), first, '+inf', 'LIMIT', 0, limit)
rows.load(numbers)
local found, last = {}, nil
for i, number in ipairs(numbers) do
  local row = rows.get(number)
  local names = tasks.groups_of(row)
  found[i] = {
    id = row.id, task = row.task, tier = row.tier, groups = names, passed = row.passed, turn = row.turn,
    suspicion = row.suspicion,
  }
  last = row.key
  looks = looks - groups.looks(names)
  if looks <= 0 then
    break
  end
end
return step.answer({
  line = found,
  at_the_end = limit == 0 or #numbers < limit and #found == #numbers,
  last = last,
  queued = call('ZCARD', key('line')),
})
