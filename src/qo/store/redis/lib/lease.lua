-- Leases: take one with a slot in every group that records its holders, and end it.
-- The slots are recorded in the lease and given back from there.
-- include lib/line.lua
-- include lib/suspects.lua
-- exports lease

local lease = { RAN_OUT = 'expired' } -- the reason of a lease that was not revoked
local leases, changed_leases
local ends -- by token: when the leases end that began in this step
local callers -- by holder: the token of the caller's lease, or false, as far as this step has looked
local claims -- by claim id: the tokens of its live leases
local changed_claims
local quoted -- the worker's name; a claim is by one

at_the_beginning[#at_the_beginning + 1] = function()
  leases, changed_leases, ends, callers, claims, changed_claims, quoted = {}, {}, {}, {}, {}, {}, nil
end

function lease.load(tokens)
  local missing = {}
  for _, token in ipairs(tokens) do
    if leases[token] == nil then
      missing[#missing + 1] = token
    end
  end
  for i, text in ipairs(fields_of(key('leases'), missing)) do
    leases[missing[i]] = text and cmsgpack.unpack(text) or false
  end
end

function lease.get(token)
  if leases[token] == nil then
    lease.load({ token })
  end
  return leases[token] or nil
end

function lease.looks(token)
  -- How much its end counts towards a portion.
  local held = 0
  for _ in pairs(leases[token].slots or NONE) do
    held = held + 1
  end
  return math.max(1, groups.looks_of(held))
end

function lease.end_of(token)
  -- The end of the lease, on counted time.
  return ends[token] or tonumber(call('ZSCORE', written(key('expiry')), token))
end

function lease.end_on_the_clock(token)
  return lease.end_of(token) + step.counter('uncounted_ms')
end

function lease.load_callers(holders)
  -- Read all leases in one command, before any of them is changed.
  for i, token in ipairs(fields_of(written(key('callers')), holders)) do
    callers[holders[i]] = token
  end
end

function lease.of_caller(holder)
  -- The token of a caller's lease.
  if callers[holder] == nil then
    lease.load_callers({ holder })
  end
  return callers[holder] or nil
end

local function write_leases()
  for token in pairs(changed_leases) do
    if leases[token] then
      later('HSET', key('leases'), token, cmsgpack.pack(leases[token]))
    end
  end
  changed_leases = {}
  for claim in pairs(changed_claims) do
    local tokens = claims[claim]
    if #tokens > 0 then
      later('HSET', key('claims'), claim, cmsgpack.pack(tokens))
    else
      later('HDEL', key('claims'), claim)
    end
  end
end

at_the_end[#at_the_end + 1] = write_leases

function lease.begin_claim(claim)
  -- Nothing is held under this name, so it need not be read.
  claims[claim] = {}
end

function lease.of_claim(claim)
  if not claims[claim] then
    local text = call('HGET', key('claims'), claim)
    claims[claim] = text and cmsgpack.unpack(text) or {}
  end
  return claims[claim]
end

local function store(token, taken, lease_ms)
  local expires_at = step.counted_now() + lease_ms
  leases[token] = taken
  changed_leases[token] = true
  ends[token] = expires_at
  step.comes('expiry', expires_at, token)
end

-- --- slots ----------------------------------------------------------------------------------------------------

function lease.take_slots(names, token, uncounted, waited_ms)
  -- Take one slot in each of these groups, which must have room; in the first `uncounted` only if they have a limit.
  local all, taken = groups.of(names), nil
  if #names > uncounted then
    groups.look_for_holders(all)
  end
  for i, name in ipairs(names) do
    local limited = all[i].limit
    if limited or i > uncounted then
      taken = taken or {}
      taken[name] = groups.take(name, token)
      if limited then
        step.figure(figure_names.acquired(name, waited_ms), waited_ms)
      end
    end
  end
  return taken
end

function lease.slots(taken)
  -- Only the slots in groups that have a limit.
  local limited = {}
  for name, number in pairs(taken.slots or NONE) do
    if groups.get(name).limit then
      limited[name] = number
    end
  end
  return next(limited) and limited or nil
end

function lease.adopt(name)
  -- Record the running jobs of a group that gets its first limit as its holders. Only `global`, a task's group and
  -- `priority:` need it; all other groups always record their holders.
  local kind = kind_of(name)
  if kind ~= name and kind ~= 'priority' then
    return
  end
  write_leases()
  local tokens = call('HKEYS', written(key('leases')))
  table.sort(tokens)
  lease.load(tokens)
  for _, token in ipairs(tokens) do
    local taken = leases[token]
    if taken and taken.job and not (taken.slots or NONE)[name]
      and (name == 'global' or name == taken.task or name == 'priority:' .. taken.priority) then
      taken.slots = taken.slots or {}
      taken.slots[name] = groups.take(name, token)
      changed_leases[token] = true
    end
  end
end

-- --- claiming -------------------------------------------------------------------------------------------------

local function count_promise(promise)
  local made_at, lower, upper = promise:match('^(%d+) (%d+) (%d+)$')
  local after_ms = step.now - made_at
  local is_kept = after_ms >= tonumber(lower) and after_ms <= tonumber(upper)
  step.figure(is_kept and PROMISE_KEPT or PROMISE_MISSED, after_ms)
end

function lease.claim_job(row, names, worker, claim, lease_ms)
  local token = step.draw_token()
  local waited_ms = step.now - row.joined_at
  local taken = {
    holder = row.id, job = row.number, task = row.task, priority = row.priority, worker = worker, claim = claim,
    slots = lease.take_slots(names, token, COUNTED_IF_LIMITED, waited_ms),
    is_alone = row.suspicion == LAST_SUSPECT or nil,
  }
  line.leave(row)
  line.forget_start_by(row)
  groups.add_claimable(tasks.source_of(row), -1)
  rows.reach(row, 'starting')
  if row.promise and not row.started_at then
    count_promise(row.promise)
  end
  row.attempts = (row.attempts or 0) + 1
  row.max_attempts = row.max_attempts or tasks.max_attempts(row.task)
  row.started_at = step.now
  row.token = token
  row.worker = worker
  row.stage, row.progress, row.message = nil, nil, nil
  store(token, taken, lease_ms)
  local tokens = lease.of_claim(claim)
  tokens[#tokens + 1] = token
  changed_claims[claim] = true
  later('SADD', key('running:', worker), token)
  step.figure('wait:' .. row.priority, waited_ms)
  quoted = quoted or cjson.encode(worker)
  step.event_with('starting', row.id, '{"worker":' .. quoted .. ',"attempt":' .. row.attempts .. '}')
  return taken
end

function lease.grant(ticket, lease_ms)
  -- Give a caller its slots.
  local token = step.draw_token()
  local taken = {
    holder = ticket.holder, worker = ticket.worker,
    slots = lease.take_slots(ticket.groups, token, 0, step.now - ticket.joined_at),
  }
  store(token, taken, lease_ms)
  callers[ticket.holder] = token
  later('HSET', key('callers'), ticket.holder, token)
  return token
end

-- --- ending ---------------------------------------------------------------------------------------------------

function lease.is_held(row, token)
  return HELD[row.state] and row.token == token
end

local function load_with_groups(tokens)
  -- Also read the slots that they hold, in one command.
  lease.load(tokens)
  local names = {}
  for _, token in ipairs(tokens) do
    for name in pairs(leases[token].slots or NONE) do
      names[#names + 1] = name
    end
  end
  groups.load(names)
end

function lease.finish(tokens)
  -- Free the slots and delete the leases. The jobs stay as they are; the calling function changes them.
  load_with_groups(tokens)
  for _, token in ipairs(tokens) do
    local taken = leases[token]
    for name, number in pairs(taken.slots or NONE) do
      groups.free(name, token, number)
    end
    if taken.claim then
      local live = lease.of_claim(taken.claim)
      changed_claims[taken.claim] = true
      for i = #live, 1, -1 do
        if live[i] == token then
          table.remove(live, i)
        end
      end
    end
    if taken.job then
      later('SREM', key('running:', taken.worker), token)
    else
      callers[taken.holder] = false
      later('HDEL', key('callers'), taken.holder)
    end
    later('HDEL', key('leases'), token)
    later('ZREM', key('expiry'), token)
    leases[token], ends[token] = false, nil
    changed_leases[token] = nil
  end
end

function lease.note_attempt(row, taken, outcome, error)
  -- The run of a job is over.
  local debug_id = error and cjson.decode(error).debug_id
  local attempt = {
    row.attempts, row.worker, lease.slots(taken) or NONE, row.started_at, step.now, outcome,
    type(debug_id) == 'string' and debug_id or '',
  }
  row.past_attempts = rows.with_line(row.past_attempts, cjson.encode(attempt), KEPT_ATTEMPTS)
  rows.record(outbox.ATTEMPT, row)
end

function lease.end_job(row, state, error)
  -- End a job as succeeded, failed or cancelled, from any state. Its lease must have ended before.
  local was_held = HELD[row.state]
  if row.state == 'queued' then
    line.leave(row)
  end
  line.give_up_place(row)
  line.forget_start_by(row)
  suspects.clear(row)
  rows.reach(row, state)
  row.finished_at = step.now
  line.stop_waiting(row)
  if row.deferred then
    line.set_deferred(row, false)
  end
  lease.stop_confirming(row)
  row.cancel_wanted = nil
  if state ~= 'cancelled' then
    row.error = error
  end
  later('ZADD', key('finished'), step.now, row.number)
  if row.unique_key then
    later('HDEL', key('unique'), row.unique_key)
  end
  if row.has_contact then
    row.has_contact = nil
    later('HDEL', key('contacts'), row.number)
  end
  if row.parent then
    call('HINCRBY', key('unfinished'), row.parent, -1)
    later('ZADD', key('endings:', row.parent), step.now, row.number)
  end
  rows.record(outbox.ENDED, row)
  step.figure('ended:' .. state, was_held and step.now - row.started_at or 0)
  if state == 'failed' then
    step.event(state, row.id, { message = error and cjson.decode(error).message or cjson.null })
  elseif state == 'cancelled' then
    step.event(state, row.id, { message = row.message or cjson.null })
  else
    step.event(state, row.id)
  end
end

function lease.begin_confirming(row)
  row.confirming_at, row.reminded = step.now, nil
  later('ZADD', key('confirming'), step.now, row.number)
  later('ZADD', key('reminded:', 0), step.now, row.number)
end

function lease.stop_confirming(row)
  if row.confirming_at then
    later('ZREM', key('confirming'), row.number)
    later('ZREM', key('reminded:', row.reminded or 0), row.number)
    row.confirming_at = nil
    rows.save(row)
  end
end

local function limited_groups(taken)
  -- The slots by group name; nil when it holds none.
  local names = {}
  for name in pairs(taken.slots or NONE) do
    if groups.get(name).limit then
      names[#names + 1] = name
    end
  end
  table.sort(names, comes_before)
  return #names > 0 and names or nil
end

function lease.lose(tokens, reason)
  -- End leases that ran out or were revoked, and return the ids of their jobs. All slots are freed before the first job
  -- joins the line again, so that no job is parked because of another one.
  lease.load(tokens)
  local ended, numbers = {}, {}
  for i, token in ipairs(tokens) do
    ended[i] = leases[token]
    numbers[#numbers + 1] = leases[token].job
  end
  rows.load(numbers)
  lease.finish(tokens)
  local ids, coming_back, ran_out = {}, {}, reason == lease.RAN_OUT
  for i, token in ipairs(tokens) do
    local taken = ended[i]
    local detail = { token = step.plain(token), reason = reason, groups = limited_groups(taken) }
    step.signal(taken.worker, LEASE_LOST, taken.holder, detail)
    local row = taken.job and rows.get(taken.job)
    if row then
      ids[#ids + 1] = row.id
      lease.note_attempt(row, taken, ran_out and LOST or REVOKED)
      if row.cancel_wanted then
        lease.end_job(row, 'cancelled')
      elseif row.attempts >= row.max_attempts then
        local message = 'The worker stopped responding, and all ' .. row.max_attempts .. ' attempts are used.'
        lease.end_job(row, 'failed', cjson.encode({ message = message }))
        if ran_out then
          suspects.keep_in_mind(row)
        end
      else
        coming_back[#coming_back + 1] = row
        if ran_out then
          suspects.suspect(row)
        else
          suspects.clear(row)
        end
      end
    end
  end
  line.look_up_lanes(coming_back)
  for _, row in ipairs(coming_back) do
    row.worker, row.token, row.cancel_wanted = nil, nil, nil
    line.come_back(row, reason)
  end
  return ids
end
