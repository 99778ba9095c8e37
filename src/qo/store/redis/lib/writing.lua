-- Many members in few commands: writes to single members wait until the key is read, or until the end of the step;
-- fields are read together.
-- include lib/server.lua
-- exports later, written, take_back, write_pending, call_in_parts, fields_of, members_of

local ARGUMENTS_AT_MOST = 400 -- of one command; Lua's stack holds some thousands

local pending -- by key: one command so far, its name first and then its arguments
local begun -- by key: whether some of it has been written already

at_the_beginning[#at_the_beginning + 1] = function()
  pending, begun = {}, {}
end

local function call_in_parts(command, name, list, first)
  for from = first or 1, #list, ARGUMENTS_AT_MOST do
    call(command, name, unpack(list, from, math.min(from + ARGUMENTS_AT_MOST - 1, #list)))
  end
end

local function written(name)
  -- The key, after everything that waits for it was written, so that it can be read.
  local waiting = pending[name]
  if waiting then
    pending[name], begun[name] = nil, true
    if #waiting <= ARGUMENTS_AT_MOST then
      call(waiting[1], name, unpack(waiting, 2)) -- as nearly always; the parts take longer to work out
    else
      call_in_parts(waiting[1], name, waiting, 2)
    end
  end
  return name
end

local function later(command, name, a, b)
  -- Like the server's command of that name; commands keep their order.
  local waiting = pending[name]
  if waiting and waiting[1] ~= command then
    written(name)
    waiting = nil
  end
  if not waiting then
    pending[name] = { command, a, b }
  else
    waiting[#waiting + 1] = a
    waiting[#waiting + 1] = b
  end
end

local function take_back(name, member)
  -- Remove a member that this very step has added to a sorted set: if its addition still waits, neither is written.
  local waiting = pending[name]
  if waiting and not begun[name] and #waiting == 3 and waiting[1] == 'ZADD' and waiting[3] == member then
    pending[name] = nil
  else
    later('ZREM', name, member)
  end
end

local function write_pending()
  for name in pairs(pending) do
    written(name)
  end
end

local function look_up(command, name, list)
  if #list > 0 and #list <= ARGUMENTS_AT_MOST then
    return call(command, name, unpack(list))
  end
  local found = {}
  for first = 1, #list, ARGUMENTS_AT_MOST do
    local last = math.min(first + ARGUMENTS_AT_MOST - 1, #list)
    for _, value in ipairs(call(command, name, unpack(list, first, last))) do
      found[#found + 1] = value
    end
  end
  return found
end

local function fields_of(name, fields)
  -- The fields of a hash in their order; false where there is none.
  return look_up('HMGET', name, fields)
end

local function members_of(name, members)
  -- For each of these, 1 if it is a member of the set, else 0.
  return look_up('SMISMEMBER', name, members)
end
