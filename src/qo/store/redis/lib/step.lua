-- One atomic step: its arguments, its time, and what it writes at its end.
--
-- keys[1]  the prefix of every key of this namespace, `qo:{namespace}:`; docs/internals/stores.md lists the keys
-- argv[1]  the operation's arguments, packed; `now` only in tests, `bounds` of `values/bounds.py` only if not the default
-- argv[2]  the operation's id, if its reply has to be kept for a repetition, else empty
-- argv[3…] payloads, checkpoints and results, which no operation reads; arguments refer to them by number
--
-- Reply    a list: the result, packed, then the rows, payloads or leases that it refers to
--
-- Nothing can be rolled back, so an operation refuses before its first write. Each part clears its memory of one step
-- in `at_the_beginning` of the next.
-- include lib/outbox.lua
-- exports begin, MINUTE_MS

local KEEP_REPLY_MS = 60000 -- several times as long as anybody sends a call again
local MINUTE_MS = 60000
local ENTRIES_AT_MOST = 100000 -- of the feed; a net below `forget`: nobody may be there to call it

local argv

-- --- events, audit trail, figures -----------------------------------------------------------------------------

local events, kinds, figures
local signals -- by worker: which of the events are for it
local has_signals
local EMPTY = '{}'

at_the_beginning[#at_the_beginning + 1] = function()
  events, kinds, figures, signals, has_signals = {}, {}, {}, {}, false
end

function step.event(kind, subject, detail)
  step.event_with(kind, subject, detail and cjson.encode(detail) or EMPTY)
end

function step.event_with(kind, subject, detail)
  -- The detail is already encoded.
  events[#events + 1] = { step.now, kind, subject, detail }
  kinds[kind] = true
end

function step.signal(worker, kind, subject, detail)
  -- An event that is also published to one worker or limiter at once, because it concerns a lease or ticket of theirs.
  step.event(kind, subject, detail)
  has_signals = true
  if worker then
    signals[worker] = signals[worker] or {}
    table.insert(signals[worker], #events)
  end
end

function step.audit(by, action, subject, detail)
  step.audit_with(by, action, subject, cjson.encode(detail))
end

function step.audit_with(by, action, subject, detail)
  -- The detail is already encoded.
  local id = step.counter('last_audit') + 1
  step.set_counter('last_audit', id)
  later('HSET', key('audit'), id, cmsgpack.pack({ step.now, by or false, action, subject, detail }))
  if outbox.is_on() then
    outbox.add_audit({ id, step.now, by or false, action, subject, detail })
  end
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
  -- Each worker gets its own events in full, so it need not read the feed.
  for worker, places in pairs(signals) do
    local told = {}
    for i, place in ipairs(places) do
      local at, kind, subject, detail = unpack(events[place])
      told[i] = { newest - #events + place, at, kind, subject, detail }
    end
    call('SPUBLISH', key('signals:', worker), cmsgpack.pack({ newest, told }))
  end
  step.set_counter('newest_signal', newest)
end

local function write_events()
  if #events == 0 then
    return
  end
  local newest = step.counter('newest_event') + #events
  step.set_counter('newest_event', newest)
  -- All events of a step are one entry, under the number of the last. Its kinds are stored beside
  -- them, so that a reader of only some kinds need not unpack the others.
  local names = { '' }
  for kind in pairs(kinds) do
    names[#names + 1] = kind
  end
  names[#names + 1] = ''
  if has_signals then
    tell_signals(newest)
  end
  local number = digits(newest)
  call(
    'XADD', key('events'), 'MAXLEN', '~', ENTRIES_AT_MOST, number .. '-0', 'events', cmsgpack.pack(events),
    'kinds', table.concat(names, ',')
  )
  call('SPUBLISH', key('events'), number)
end

local function write_figures()
  local minute = math.floor(step.now / MINUTE_MS)
  local name = key('figures:', minute)
  for figure, sums in pairs(figures) do
    if call('HINCRBY', name, 'n:' .. figure, sums[1]) == sums[1] then
      -- The first figure of its kind in this minute, and perhaps the first figure of the minute.
      call('ZADD', key('minutes'), minute, minute)
    end
    if sums[2] ~= 0 then
      call('HINCRBY', name, 't:' .. figure, sums[2])
    end
  end
  local depth = step.depth_if_changed()
  if depth and call('HSET', name, 'n:' .. DEPTH, depth) == 1 then
    call('ZADD', key('minutes'), minute, minute)
  end
end

-- --- answering ------------------------------------------------------------------------------------------------

function step.answer(answer, blobs)
  for i = #at_the_end, 1, -1 do
    at_the_end[i]()
  end
  write_figures()
  write_events()
  outbox.write()
  write_pending()
  step.write_counters()
  local reply = { cmsgpack.pack(answer) }
  for i = 1, #(blobs or {}) do
    reply[i + 1] = blobs[i]
  end
  if argv[2] ~= '' then
    call('SET', key('reply:', argv[2]), cmsgpack.pack(reply), 'PX', KEEP_REPLY_MS)
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
  meet_server(keys)
  argv = arguments
  if argv[2] ~= '' then
    -- Its reply was lost: it has taken effect, and gets the same reply again.
    local known = call('GET', key('reply:', argv[2]))
    if known then
      return cmsgpack.unpack(known)
    end
  end
  for _, forget in ipairs(at_the_beginning) do
    forget()
  end
  local asked = cmsgpack.unpack(argv[1])
  step.now = asked.now or now_ms()
  step.bounds = asked.bounds or DEFAULT_BOUNDS
  return operation(asked)
end
