-- outbox_read: remove what was recorded, and read what comes next.
--
-- Arguments  recorded: the id of the last entry that was recorded, and the SHA-1 of its records; after: the same of an
--            entry that was read, to go on behind it; entries and bytes, how much to read at most
-- Answers    the ids, and how many records there are; the entries beside them
--
-- The SHA-1, because the server may have lost its newest data since they were read: then another entry may have this id
-- by now, and those before it may not have been read.
-- flags allow-oom
-- include lib/outbox.lua
-- include lib/step.lua

local AT_ONCE = 64

local function find(known)
  local found = known and call('XRANGE', key('outbox'), known.id .. '-0', known.id .. '-0')[1]
  return found and redis.sha1hex(found[2][2]) == known.sha1 and found
end

local after = find(arguments.after)
local recorded = find(arguments.recorded)
if recorded then
  call('XTRIM', key('outbox'), 'MINID', arguments.recorded.id .. '-1')
  step.set_counter('outbox_recorded', tonumber(recorded[2][4]))
end
local ids, entries, size = {}, {}, 0
local from = after and '(' .. after[1] or '-'
while #ids < arguments.entries and size < arguments.bytes do
  local wanted = math.min(AT_ONCE, arguments.entries - #ids)
  local found = call('XRANGE', key('outbox'), from, '+', 'COUNT', wanted)
  for _, entry in ipairs(found) do
    if size < arguments.bytes then
      ids[#ids + 1] = entry[1]:match('^%d+')
      entries[#ids] = entry[2][2]
      size = size + #entry[2][2]
    end
  end
  if #found < wanted then
    break
  end
  from = '(' .. found[#found][1]
end
return step.answer({ ids = ids, length = outbox.length() }, entries)
