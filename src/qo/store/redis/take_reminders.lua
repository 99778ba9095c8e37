-- take_reminders: reminders now due for confirming jobs, each handed out once ever.
--
-- Arguments  ages_ms, in ascending order
-- Answers    job, number and since when it waits, longest waiting first; of one job in their order
-- Events     none
--
-- Jobs are indexed by how many reminders were handed out for them, so those that have had theirs are not looked at.
-- flags allow-oom
-- include lib/rows.lua

local ages_ms, portion = arguments.ages_ms, step.bounds.portion
local reminders = {}

local function waiting()
  -- Jobs for which the reminder is due that follows those they have had: at least one portion, longest waiting first.
  local found = {}
  for had = 0, #ages_ms - 1 do
    local some = call(
      'ZRANGEBYSCORE', key('reminded:', had), '-inf', step.now - ages_ms[had + 1], 'WITHSCORES', 'LIMIT', 0, portion
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

local function take(each)
  local row, reminded = rows.get(each.number), each.had
  while #reminders < portion and reminded < #ages_ms and each.since <= step.now - ages_ms[reminded + 1] do
    reminded = reminded + 1
    reminders[#reminders + 1] = { job_id = row.id, number = reminded, since = each.since }
  end
  if reminded > each.had then
    row.reminded = reminded
    rows.save(row)
    later('ZREM', key('reminded:', each.had), each.number)
    later('ZADD', key('reminded:', reminded), each.since, each.number)
  end
end

for _, each in ipairs(waiting()) do
  take(each)
end
return step.answer({ reminders = reminders })
