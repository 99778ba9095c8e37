-- age: jobs that have been in line for a period since they entered it or last aged move up one named level.
--
-- Arguments  period_ms
-- Answers    the jobs that moved up; whether there are more to look at
-- Events     aged
-- flags allow-oom
-- include lib/hand_over.lua
-- include lib/wake.lua

local LEVELS = { 20, 50, 70, 90 } -- those that aging may lead to

local function aged_priority(priority)
  local above
  for _, level in ipairs(LEVELS) do
    if level < priority then
      above = level
    end
  end
  return above
end

local found, more = rows.due('aged', step.now - arguments.period_ms)
local ids, counted = {}, 0
for _, row in ipairs(found) do
  if counted >= step.bounds.portion then
    more = true
    break
  end
  counted = counted + groups.looks(tasks.groups_of(row))
  local priority = aged_priority(line.priority_of(row.key))
  row.aged_at = step.now
  later('ZADD', key('aged'), step.now, row.number)
  rows.save(row)
  if priority then
    line.enter_again(row, line.order_key(priority, line.place_of(row.key)))
    step.event('aged', row.id, { priority = priority })
    ids[#ids + 1] = row.id
  end
end
hand_over()
return step.answer({ ids = ids, more = more })
