-- put_record: write small service data if it still has the expected version.
--
-- Arguments  name, version, value as text; without a value it is removed; audited (its detail as text)
-- Answers    whether the version was still the expected one. Audit: what is given, where written
-- include lib/step.lua

local text = call('HGET', key('records'), arguments.name)
local present = text and cmsgpack.unpack(text)[1] or 0
if present ~= arguments.version then
  return step.answer({ written = false })
end
if arguments.value then
  call('HSET', key('records'), arguments.name, cmsgpack.pack({ present + 1, arguments.value }))
  call('ZADD', key('record_names'), 0, arguments.name)
else
  call('HDEL', key('records'), arguments.name)
  call('ZREM', key('record_names'), arguments.name)
end
local audited = arguments.audited
if audited then
  step.audit_with(audited.by, audited.action, audited.subject, audited.detail)
end
return step.answer({ written = true })
