-- audit: what people did, newest first.
--
-- Arguments  subject, limit
-- Answers    id, time, by, action, subject and detail of each
-- flags no-writes
-- include lib/step.lua

local ids = {}
if arguments.subject then
  ids = call('LRANGE', key('audit:', arguments.subject), -arguments.limit, -1)
else
  local last = step.counter('last_audit')
  for id = last - math.min(arguments.limit, call('HLEN', key('audit'))) + 1, last do
    ids[#ids + 1] = digits(id)
  end
end
local entries = {}
for i = #ids, 1, -1 do
  local entry = cmsgpack.unpack(call('HGET', key('audit'), ids[i]))
  entries[#entries + 1] = { tonumber(ids[i]), entry[1], entry[2], entry[3], entry[4], entry[5] }
end
return step.answer({ entries = entries })
