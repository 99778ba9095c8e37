-- positions: 1-based ranks of those of the given jobs that are in line.
--
-- Arguments  ids
-- Answers    for each, its rank, or 0
-- flags no-writes
-- include lib/rows.lua

local ranks = {}
for i, number in ipairs(rows.numbers(arguments.ids)) do
  local rank = number and call('ZRANK', key('line'), number)
  ranks[i] = rank and rank + 1 or 0
end
return step.answer({ ranks = ranks })
