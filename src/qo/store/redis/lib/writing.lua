-- Writing in batches: what a step does member by member waits until somebody reads the key, or until the step's end.
-- include lib/server.lua
-- exports later, written, take_back, write_pending, call_in_parts, ARGUMENTS_AT_MOST

local ARGUMENTS_AT_MOST = 400 -- of one command; Lua's stack holds some thousands

local pending -- by key: the arguments of one command, or what becomes of each member where there were several
local commands -- by key: that command, while there is one

at_the_beginning[#at_the_beginning + 1] = function()
  pending, commands = {}, {}
end

local PUT = { ZADD = 'ZADD', ZREM = 'ZADD', HSET = 'HSET', HDEL = 'HSET', SADD = 'SADD', SREM = 'SADD' }
local DROP = { ZADD = 'ZREM', HSET = 'HDEL', SADD = 'SREM' }

local function call_in_parts(command, name, list)
  for first = 1, #list, ARGUMENTS_AT_MOST do
    call(command, name, unpack(list, first, math.min(first + ARGUMENTS_AT_MOST - 1, #list)))
  end
end

local function add_to(list, command, member, becomes)
  if command == 'ZADD' then
    list[#list + 1] = becomes
    list[#list + 1] = member
  elseif command == 'HSET' then
    list[#list + 1] = member
    list[#list + 1] = becomes
  else
    list[#list + 1] = member
  end
end

local function write(name, waiting)
  if commands[name] then
    call_in_parts(commands[name], name, waiting)
    return
  end
  local put, puts, drops = waiting.put, {}, {}
  for member, becomes in pairs(waiting.members) do
    if becomes == false then
      drops[#drops + 1] = member
    else
      add_to(puts, put, member, becomes)
    end
  end
  call_in_parts(put, name, puts)
  call_in_parts(DROP[put], name, drops)
end

local function written(name)
  -- The key, safe to be read: what waits to be written there is written first.
  local waiting = pending[name]
  if waiting then
    pending[name] = nil
    write(name, waiting)
  end
  return name
end

local function note(members, command, a, b)
  if command == 'ZADD' then
    members[b] = a
  elseif command == 'HSET' then
    members[a] = b
  else
    members[a] = command == 'SADD'
  end
end

local function by_member(command, list)
  local members, each = {}, (command == 'ZADD' or command == 'HSET') and 2 or 1
  for i = 1, #list, each do
    note(members, command, list[i], list[i + each - 1])
  end
  return { put = PUT[command], members = members }
end

local function later(command, name, a, b)
  -- As the server's command of that name. Of several on one member of a key, only the last is carried out.
  local waiting, before = pending[name], commands[name]
  if not waiting then
    pending[name], commands[name] = { a, b }, command
  elseif before == command then
    waiting[#waiting + 1] = a
    waiting[#waiting + 1] = b
  else
    if before then
      waiting = by_member(before, waiting)
      pending[name], commands[name] = waiting, nil
    end
    note(waiting.members, command, a, b)
  end
end

local function take_back(name, member)
  -- Out of a sorted set, where nobody but this step has put it.
  local waiting = pending[name]
  if waiting and waiting.members and waiting.members[member] then
    waiting.members[member] = nil
  elseif waiting and commands[name] == 'ZADD' and waiting[#waiting] == member then
    waiting[#waiting], waiting[#waiting - 1] = nil, nil
  else
    later('ZREM', name, member)
  end
end

local function write_pending()
  for name, waiting in pairs(pending) do
    write(name, waiting)
  end
  pending = {}
end
