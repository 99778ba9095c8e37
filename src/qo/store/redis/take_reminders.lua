-- take_reminders: reminders now due for confirming jobs, each handed out once ever.
--
-- Arguments  ages_ms, in ascending order
-- Answers    job, number and since when it waits, longest waiting first of the last reminder, then of the one before
-- Events     none
--
-- Jobs are indexed by how many reminders were handed out for them, so those that have had theirs are not looked at.
-- flags allow-oom
-- include lib/rows.lua

local reminders = {}

local function due(number, age_ms)
  -- Those that wait for so long and have had fewer reminders, one portion.
  local found = {}
  for had = 0, number - 1 do
    local some = call(
      'ZRANGEBYSCORE', written(key('reminded:', had)), '-inf', step.now - age_ms, 'WITHSCORES', 'LIMIT', 0,
      step.bounds.portion
    )
    for i = 1, #some, 2 do
      found[#found + 1] = { number = some[i], since = tonumber(some[i + 1]), had = had }
    end
  end
  table.sort(found, function(a, b)
    if a.since ~= b.since then
      return a.since < b.since
    end
    return a.number < b.number
  end)
  return found
end

for number = #arguments.ages_ms, 1, -1 do
  for _, each in ipairs(due(number, arguments.ages_ms[number])) do
    if #reminders == step.bounds.portion then
      break
    end
    local row = rows.get(each.number)
    row.reminded = number
    rows.save(row)
    later('ZREM', key('reminded:', each.had), each.number)
    later('ZADD', key('reminded:', number), each.since, each.number)
    reminders[#reminders + 1] = { job_id = row.id, number = number, since = each.since }
  end
end
return step.answer({ reminders = reminders })
