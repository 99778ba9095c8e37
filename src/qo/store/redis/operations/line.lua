-- line: jobs in line in their order, with only what they compete for; a part of them.
--
-- Arguments  last (the order key behind which to begin), limit; or around (a job's id), limit: neighbours on each side
-- Answers    id, task, order key, undisturbed key, tier, groups, passes, turn and suspicion of each; whether that was
--            the end, else the key of the last; how many are in line in all; the sequence that the next one draws; the
--            groups that tasks add; refused: no_job
--
-- A call answers a part of them, so that none takes long: fewer where jobs have many groups.
-- flags no-writes
-- include lib/groups.lua

local looks = 4000 -- how many are left in this call, as a claim counts them
local first, limit = arguments.last and below(arguments.last) or '-inf', arguments.limit
local numbers
if arguments.around then
  local row = rows.find(arguments.around)
  if not row then
    return step.refuse('no_job', { id = arguments.around })
  end
  local rank = call('ZRANK', key('line'), row.number)
  numbers = rank and call('ZRANGE', key('line'), math.max(0, rank - limit), rank + limit) or {}
else
  numbers = limit == 0 and {} or call('ZRANGEBYSCORE', key('line'), first, '+inf', 'LIMIT', 0, limit)
end
rows.load(numbers)
local found, last = {}, nil
for i, number in ipairs(numbers) do
  local row = rows.get(number)
  local names = tasks.groups_of(row)
  found[i] = {
    id = row.id, task = row.task, key = row.key, tier = row.tier, groups = names, passed = row.passed, turn = row.turn,
    suspicion = row.suspicion, undisturbed_key = row.undisturbed_key,
  }
  last = row.key
  looks = looks - groups.looks(names)
  if looks <= 0 then
    break
  end
end
local task_groups, stored = {}, call('HGETALL', key('tasks'))
for i = 1, #stored, 2 do
  local names = cmsgpack.unpack(stored[i + 1]).groups
  if names and #names > 0 then
    task_groups[#task_groups + 1] = { stored[i], names }
  end
end
return step.answer({
  line = found,
  at_the_end = limit == 0 or #numbers < limit and #found == #numbers,
  last = last,
  queued = call('ZCARD', key('line')),
  next_sequence = step.counter('next_sequence'),
  task_groups = task_groups,
})
