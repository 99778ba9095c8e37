-- records: service data of a name, or all whose name begins so, by name.
--
-- Arguments  name, prefix
-- Answers    name, version and value of each
-- flags no-writes
-- include lib/step.lua

local wanted, found = arguments.prefix, {}
local names = {}
if arguments.name then
  if call('HEXISTS', key('records'), arguments.name) == 1 then
    names = { arguments.name }
  end
elseif wanted == '' then
  names = call('ZRANGE', key('record_names'), 0, -1)
else
  names = call('ZRANGEBYLEX', key('record_names'), '[' .. wanted, '[' .. wanted .. '\255')
end
for i, name in ipairs(names) do
  local record = cmsgpack.unpack(call('HGET', key('records'), name))
  found[i] = { name, record[1], record[2] }
end
return step.answer({ records = found })
