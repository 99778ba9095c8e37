-- The part of upkeep that is about jobs which wait for a confirmation.
--
-- Jobs are indexed by how many reminders were handed out for them, so those that have had theirs are not looked at.
-- include lib/share.lua
-- include lib/hand_over.lua
-- exports confirming

local confirming = {}

function confirming.fail(after_ms, error)
  -- Fail the jobs that have waited for so long, longest first; their ids.
  local ids = {}
  for i, row in ipairs(share.take(rows.due('confirming', step.now - after_ms, share.left() + 1))) do
    lease.end_job(row, 'failed', error)
    ids[i] = row.id
  end
  return ids
end

local function waiting(ages_ms)
  -- Jobs for which the reminder is due that follows those they have had, longest waiting first.
  local found = {}
  for had = 0, #ages_ms - 1 do
    local some = call(
      'ZRANGEBYSCORE', written(key('reminded:', had)), '-inf', step.now - ages_ms[had + 1], 'WITHSCORES', 'LIMIT', 0,
      share.left() + 1
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

local function hand_out(due)
  -- Of one job, its first `due.count` reminders that are due.
  local row = rows.get(due.number)
  row.reminded = due.had + due.count
  rows.save(row)
  later('ZREM', key('reminded:', due.had), due.number)
  later('ZADD', key('reminded:', row.reminded), due.since, due.number)
end

function confirming.remind(ages_ms)
  -- The reminders that are due, each handed out once ever; of one job in their order.
  local reminders = {}
  for _, each in ipairs(waiting(ages_ms)) do
    local last = each.had
    while last < #ages_ms and each.since <= step.now - ages_ms[last + 1] do
      last = last + 1
    end
    each.count = share.take_some(last - each.had)
    if each.count > 0 then
      hand_out(each)
    end
    local row = rows.get(each.number)
    local contact = row.has_contact and call('HGET', key('contacts'), each.number) or nil
    for number = each.had + 1, each.had + each.count do
      reminders[#reminders + 1] = { job_id = row.id, number = number, since = each.since, contact = contact }
    end
  end
  return reminders
end
