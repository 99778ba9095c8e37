-- groups: those that are named, with their slots; or all that have a limit, a pause, a closing time or holders, by name
-- and without their slots.
--
-- Arguments  names
-- Answers    their status
-- flags no-writes
-- include lib/status.lua

local asking = kept.now()
if arguments.names then
  local found = {}
  for i, name in ipairs(arguments.names) do
    found[i] = status.of(name, asking, true)
  end
  return step.answer({ groups = found })
end

local names, known = call('HKEYS', key('groups')), {}
for _, name in ipairs(names) do
  known[name] = true
end
for _, name in ipairs(call('SMEMBERS', key('holding'))) do
  if not known[name] then
    names[#names + 1] = name
  end
end
table.sort(names, comes_before)
local found = {}
for i, name in ipairs(names) do
  found[i] = status.of(name, asking)
end
return step.answer({ groups = found })
