-- One atomic step: what it was asked, when it happens, and what it has to write at its end.
--
-- keys[1]  the prefix of every key of this namespace, `qo:{namespace}:`; docs/stores.md lists the keys
-- argv[1]  the operation's arguments, packed; `now` only in tests, `examine` and `portion` are the bounds
-- argv[2]  the operation's id, if its answer has to be kept for a repetition, else empty
-- argv[3…] payloads, checkpoints and results, which no operation looks into; arguments name them by number
--
-- Reply    a list: the answer, packed, then rows and payloads it refers to
--
-- Nothing can be undone, so an operation refuses before its first write. What a part remembers of one step it makes
-- anew in `at_the_beginning` of the next.
-- exports begin, call, step, key, digits, below, comes_before, written, later, take_back, write_pending
-- exports call_in_parts, at_the_beginning, at_the_end, MINUTE_MS, DAY_MS, NEVER, ARGUMENTS_AT_MOST

local KEEP_REPLY_MS = 60000 -- several times as long as anybody sends a call again
local MINUTE_MS, DAY_MS = 60000, 86400000
local NEVER = 2 ^ 53
local ENTRIES_AT_MOST = 100000 -- of the feed; a net below `forget`: nobody may be there to call it
local ARGUMENTS_AT_MOST = 400 -- of one command; Lua's stack holds some thousands

local step = {}
local at_the_beginning, at_the_end = {}, {} -- what parts do then; at the end those first that use others
local prefix, argv, redis_call
local keys_without_parts -- by name, of the namespace of the last step

local function call(...)
  -- The server's own is only there while a function runs.
  return redis_call(...)
end

local function digits(number)
  -- All of them: Lua's own text of a number has fourteen.
  return string.format('%.0f', number)
end

local function below(number)
  -- As the end of a range of scores, the number itself left out.
  return '(' .. digits(number)
end

local function key(name, of, within)
  -- No name holds a NUL, and every kind of key ends with a colon or has no part, so none can reach another.
  if within then
    return prefix .. name .. of .. '\0' .. within
  elseif of then
    return prefix .. name .. of
  end
  local known = keys_without_parts[name]
  if not known then
    known = prefix .. name
    keys_without_parts[name] = known
  end
  return known
end

local function comes_before(a, b)
  -- By bytes, as every store sorts. Lua's own comparison of texts depends on the server's locale.
  for i = 1, math.min(#a, #b) do
    local one, other = a:byte(i), b:byte(i)
    if one ~= other then
      return one < other
    end
  end
  return #a < #b
end

-- --- writing in batches ---------------------------------------------------------------------------------------

local pending -- by key: the arguments of one command, or what becomes of each member where there were several
local commands -- by key: that command, while there is one
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

-- --- counters -------------------------------------------------------------------------------------------------

local FIRST_SEQUENCE = 64
-- Each with what it is at first. They are stored in this order, which `store/redis/reading.py` knows, too.
local COUNTERS = {
  { 'newest_event', 0 }, { 'newest_signal', 0 }, { 'oldest_event', 1 }, { 'next_sequence', FIRST_SEQUENCE },
  { 'last_token', 0 }, { 'last_job', 0 }, { 'oldest_job', 1 }, { 'last_audit', 0 }, { 'forget_from', 0 },
  { 'noted_at', false }, { 'no_expiry_before', 0 }, { 'waiting_callers', 0 }, { 'soonest_due', NEVER },
  { 'soonest_closed', NEVER }, { 'soonest_expiry', NEVER }, { 'soonest_ticket_expiry', NEVER },
}
local place_of = {}
for place = 1, #COUNTERS do
  place_of[COUNTERS[place][1]] = place
end
local counters, counters_changed

local function read_counters()
  local stored = call('GET', key('counters'))
  counters = stored and cmsgpack.unpack(stored) or {}
  for place = #counters + 1, #COUNTERS do
    counters[place] = COUNTERS[place][2]
  end
end

function step.counter(name)
  if not counters then
    read_counters()
  end
  return counters[place_of[name]]
end

function step.set_counter(name, value)
  if not counters then
    read_counters()
  end
  counters[place_of[name]] = value
  counters_changed = true
end

local function draw(name)
  local value = step.counter(name)
  step.set_counter(name, value + 1)
  return value
end

function step.draw_sequence()
  return draw('next_sequence')
end

-- Tokens are kept with sixteen digits, so that they sort as text; people see them without leading zeros.
function step.draw_token()
  local token = math.max(step.counter('last_token') + 1, step.now * 1000)
  step.set_counter('last_token', token)
  return string.format('%016.0f', token)
end

function step.plain(token)
  return (token:gsub('^0+', ''))
end

-- Numbers of jobs have twelve digits for the same reason.
function step.draw_job_number()
  local number = step.counter('last_job') + 1
  step.set_counter('last_job', number)
  return string.format('%012.0f', number)
end

-- --- what comes due -------------------------------------------------------------------------------------------

-- Indexes by time. A counter of each says that nothing in it is due before then, which spares most steps the look.
local SOONEST = {
  due = 'soonest_due', closed = 'soonest_closed', expiry = 'soonest_expiry', ticket_expiry = 'soonest_ticket_expiry',
}

function step.comes(index, at, member)
  later('ZADD', key(index), at, member)
  if at < step.soonest(index) then
    step.set_counter(SOONEST[index], at)
  end
end

function step.soonest(index)
  return step.counter(SOONEST[index])
end

function step.due(index)
  -- One portion of what has come due in this index, and whether that was all.
  if step.now < step.soonest(index) then
    return {}, true
  end
  local portion = step.bounds.portion
  local found = call('ZRANGEBYSCORE', written(key(index)), '-inf', step.now, 'LIMIT', 0, portion + 1)
  if #found == 0 then
    local first = call('ZRANGE', key(index), 0, 0, 'WITHSCORES')
    step.set_counter(SOONEST[index], tonumber(first[2]) or NEVER)
  end
  local all = #found <= portion
  found[portion + 1] = nil
  return found, all
end

-- --- what is told ---------------------------------------------------------------------------------------------

local events, kinds, figures
local signals -- by worker: which of the events are for it
local has_signals
local EMPTY = '{}'

function step.event(kind, subject, detail)
  step.event_with(kind, subject, detail and cjson.encode(detail) or EMPTY)
end

function step.event_with(kind, subject, detail)
  -- The detail is text already.
  events[#events + 1] = { step.now, kind, subject, detail }
  kinds[kind] = true
end

function step.signal(worker, kind, subject, detail)
  -- An event that a worker has to hear of at once: it holds or waits for what this is about.
  step.event(kind, subject, detail)
  has_signals = true
  if worker then
    signals[worker] = signals[worker] or {}
    table.insert(signals[worker], #events)
  end
end

function step.audit(by, action, subject, detail)
  local id = step.counter('last_audit') + 1
  step.set_counter('last_audit', id)
  later('HSET', key('audit'), id, cmsgpack.pack({ step.now, by or false, action, subject, cjson.encode(detail) }))
  call('RPUSH', key('audit:', subject), id)
end

function step.figure(name, total_ms)
  local figure = figures[name]
  if not figure then
    figures[name] = { 1, total_ms or 0 }
  else
    figure[1] = figure[1] + 1
    figure[2] = figure[2] + (total_ms or 0)
  end
end

local function tell_signals(newest)
  -- Each worker its own, whole: it need not look.
  for worker, places in pairs(signals) do
    local told = {}
    for i, place in ipairs(places) do
      local at, kind, subject, detail = unpack(events[place])
      told[i] = { newest - #events + place, at, kind, subject, detail }
    end
    call('PUBLISH', key('signals:', worker), cmsgpack.pack({ newest, told }))
  end
  step.set_counter('newest_signal', newest)
end

local function write_events()
  if #events == 0 then
    return
  end
  local newest = step.counter('newest_event') + #events
  step.set_counter('newest_event', newest)
  -- All events of a step are one entry, under the number of the last. Which kinds are in it is told beside them, so
  -- that who follows only some of them need not open the others.
  local names = { '' }
  for kind in pairs(kinds) do
    names[#names + 1] = kind
  end
  names[#names + 1] = ''
  if has_signals then
    tell_signals(newest)
  end
  call(
    'XADD', key('events'), 'MAXLEN', '~', ENTRIES_AT_MOST, digits(newest) .. '-0', 'events',
    cmsgpack.pack(events), 'kinds', table.concat(names, ',')
  )
  call('PUBLISH', key('events'), digits(newest))
end

local function write_figures()
  local minute = math.floor(step.now / MINUTE_MS)
  local name = key('figures:', minute)
  for figure, sums in pairs(figures) do
    if call('HINCRBY', name, 'n:' .. figure, sums[1]) == sums[1] then
      -- The first of its kind in this minute, and perhaps the first of all.
      call('ZADD', key('minutes'), minute, minute)
    end
    if sums[2] ~= 0 then
      call('HINCRBY', name, 't:' .. figure, sums[2])
    end
  end
end

local function write_counters()
  if counters_changed then
    call('SET', key('counters'), cmsgpack.pack(counters))
  end
end

-- --- answering ------------------------------------------------------------------------------------------------


function step.answer(answer, blobs)
  for i = #at_the_end, 1, -1 do
    at_the_end[i]()
  end
  write_figures()
  write_events()
  write_pending()
  write_counters()
  local reply = { cmsgpack.pack(answer) }
  for i = 1, #(blobs or {}) do
    reply[i + 1] = blobs[i]
  end
  if argv[2] ~= '' then
    call('SET', prefix .. 'reply:' .. argv[2], cmsgpack.pack(reply), 'PX', KEEP_REPLY_MS)
  end
  return reply
end

function step.refuse(reason, detail)
  return { cmsgpack.pack({ refused = reason, detail = detail }) }
end

function step.blob(number)
  return argv[number]
end

-- --- beginning --------------------------------------------------------------------------------------------------

local function now_ms()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function begin(keys, arguments, operation)
  if not ipairs then
    know_lua() -- what Lua has itself, which is only there while a function runs
  end
  if keys[1] ~= prefix then
    prefix, keys_without_parts = keys[1], {}
  end
  argv, redis_call = arguments, redis.call
  if argv[2] ~= '' then
    -- Its reply was lost on the way: it has happened, and is answered as it was then.
    local known = call('GET', prefix .. 'reply:' .. argv[2])
    if known then
      return cmsgpack.unpack(known)
    end
  end
  pending, commands, counters, counters_changed = {}, {}, nil, false
  events, kinds, figures, signals, has_signals = {}, {}, {}, {}, false
  for _, forget in ipairs(at_the_beginning) do
    forget()
  end
  local asked = cmsgpack.unpack(argv[1])
  step.now = asked.now or now_ms()
  step.bounds = { examine = asked.examine, portion = asked.portion }
  return operation(asked)
end
