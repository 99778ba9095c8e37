-- audit: what people did, newest first.
--
-- Arguments  subject, limit, after (the id of the last entry of the page before)
-- Answers    id, time, by, action, subject and detail of each
-- flags no-writes
-- include lib/step.lua

local function number_before(list, id)
  -- How many entries of this list, which is sorted, are older.
  local low, high = 0, call('LLEN', list)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(call('LINDEX', list, middle)) < id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local ids = {}
if arguments.subject then
  local list = key('audit:', arguments.subject)
  local last = arguments.after and number_before(list, arguments.after) or call('LLEN', list)
  if last > 0 then
    ids = call('LRANGE', list, math.max(0, last - arguments.limit), last - 1)
  end
else
  local newest = step.counter('last_audit')
  local oldest = newest - call('HLEN', key('audit')) + 1
  local last = math.min(newest, arguments.after and arguments.after - 1 or newest)
  for id = math.max(oldest, last - arguments.limit + 1), last do
    ids[#ids + 1] = digits(id)
  end
end
local entries = {}
for i = #ids, 1, -1 do
  local entry = cmsgpack.unpack(call('HGET', key('audit'), ids[i]))
  entries[#entries + 1] = { tonumber(ids[i]), entry[1], entry[2], entry[3], entry[4], entry[5] }
end
return step.answer({ entries = entries })
