-- events: what happened after a cursor, of these kinds and subjects.
--
-- Arguments  after, kinds, subjects, limit; only_signals: whether all of the kinds are such
-- Answers    id, time, kind, subject and detail of each; the new cursor; reset
--
-- An entry of the stream holds the events of one step and is named by the last of them.
-- flags no-writes
-- include lib/step.lua

local BATCH = 100
local LOOK_AT_MOST = 2000 -- entries, so that no call takes long; the cursor tells how far it came

local function set_of(names)
  local set = {}
  for _, name in ipairs(names) do
    set[name] = true
  end
  return set
end

local function may_hold(kinds)
  for _, kind in ipairs(arguments.kinds) do
    if kinds:find(',' .. kind .. ',', 1, true) then
      return true
    end
  end
  return false
end

local function oldest_kept()
  -- The net below `forget` may have trimmed more than it did.
  local oldest = step.counter('oldest_event')
  local first = call('XRANGE', key('events'), '-', '+', 'COUNT', 1)[1]
  if not first then
    return oldest
  end
  local last_of_first = tonumber(first[1]:match('^%d+'))
  return math.max(oldest, last_of_first - #cmsgpack.unpack(first[2][2]) + 1)
end

local newest = step.counter('newest_event')
if arguments.after < oldest_kept() - 1 or arguments.after > newest then
  return step.answer({ events = {}, cursor = newest, reset = true })
end

if arguments.only_signals and step.counter('newest_signal') <= arguments.after then
  return step.answer({ events = {}, cursor = newest })
end

local kinds = arguments.kinds and set_of(arguments.kinds)
local subjects = arguments.subjects and set_of(arguments.subjects)
local found, cursor, looked_at = {}, arguments.after, 0

local function look(last, packed)
  local batch = cmsgpack.unpack(packed)
  for i, event in ipairs(batch) do
    local id = last - #batch + i
    if id > arguments.after and (not kinds or kinds[event[2]]) and (not subjects or subjects[event[3]]) then
      found[#found + 1] = { id, event[1], event[2], event[3], event[4] }
      if #found == arguments.limit then
        cursor = id
        return true
      end
    end
  end
end

while looked_at < LOOK_AT_MOST do
  local entries = call('XRANGE', key('events'), digits(cursor + 1) .. '-0', '+', 'COUNT', BATCH)
  for _, entry in ipairs(entries) do
    local last = tonumber(entry[1]:match('^%d+'))
    if not kinds or may_hold(entry[2][4]) then
      if look(last, entry[2][2]) then
        return step.answer({ events = found, cursor = cursor })
      end
    end
    cursor = last
  end
  looked_at = looked_at + #entries
  if #entries < BATCH then
    break
  end
end
return step.answer({ events = found, cursor = cursor })
